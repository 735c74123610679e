#include "model/generation/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "deltanet/error.h"

namespace deltanet {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    if (stop.empty()) throw Error("[stop_matcher] stops: given an empty string; expected at least one byte");
  }
  std::stable_sort(stops_.begin(), stops_.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
}

std::string StopMatcher::push(std::string_view text) {
  if (stopped()) return {};
  std::size_t complete = held_.size();  // no stop string ends before this place
  held_ += text;
  const std::string_view held = held_;
  while (++complete <= held.size()) {
    for (const std::string& stop : stops_) {
      if (!held.substr(0, complete).ends_with(stop)) continue;
      matched_ = stop;
      std::string shown(held.substr(0, complete - stop.size()));
      held_.clear();
      return shown;
    }
  }
  // Hold back the longest end of the text that begins a stop string.
  std::size_t kept = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t size = std::min(stop.size() - 1, held.size()); size > kept; --size) {
      if (held.ends_with(std::string_view(stop).substr(0, size))) kept = size;
    }
  }
  std::string shown(held.substr(0, held.size() - kept));
  held_.erase(0, shown.size());
  return shown;
}

std::string StopMatcher::finish() { return std::exchange(held_, {}); }

}  // namespace deltanet
