#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace deltanet {

// Ends a streamed text at the first of several stop strings. Text that could be the beginning of one is held back until
// it is clear. How the text is cut into parts makes no difference: the stop string that is complete first counts, and
// of those the longest.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);  // throws Error for an empty stop string; no stops: never ends

  std::string push(std::string_view text);  // what can be shown now; after a stop, nothing
  std::string finish();                     // what was held back, when the text ends without a stop

  bool stopped() const { return !matched_.empty(); }
  const std::string& matched() const { return matched_; }  // the stop string, or empty

 private:
  std::vector<std::string> stops_;  // longest first
  std::string held_;
  std::string matched_;
};

}  // namespace deltanet
