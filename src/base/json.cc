#include "base/json.h"

#include <set>
#include <vector>

#include "deltanet/error.h"

namespace deltanet {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 64;
constexpr size_t kLongestQuote = 200;  // bytes

}  // namespace

json parse_json(std::string_view text, const std::string& what) {
  // The parser takes a zero byte for the end and would not look at what follows.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    throw Error("[" + what + "] given a zero byte at byte " + std::to_string(zero) + "; expected JSON");
  }
  std::vector<std::set<std::string>> names;  // seen so far, in the objects around the current place
  const auto check = [&](int depth, json::parse_event_t event, json& value) {
    switch (event) {
      case json::parse_event_t::object_start:
        names.emplace_back();
        [[fallthrough]];
      case json::parse_event_t::array_start:
        if (depth >= kMaxDepth) throw Error("[" + what + "] nested deeper than " + std::to_string(kMaxDepth));
        break;
      case json::parse_event_t::object_end:
        names.pop_back();
        break;
      case json::parse_event_t::key:
        if (!names.back().insert(value.get<std::string>()).second) {
          throw Error("[" + what + "] " + in_quotes(value.get_ref<const std::string&>()) + " is given twice");
        }
        break;
      default:
        break;
    }
    return true;
  };
  try {
    return json::parse(text, check);
  } catch (const json::parse_error& error) {
    throw Error("[" + what + "] at byte " + std::to_string(error.byte) + ": expected JSON (" + error.what() + ")");
  } catch (const json::out_of_range& error) {
    throw Error("[" + what + "] expected JSON with numbers that a double can hold (" + error.what() + ")");
  }
}

std::string in_quotes(std::string_view name) {
  const bool cut = name.size() > kLongestQuote;
  const json text(name.substr(0, kLongestQuote));
  // A character cut in half, or bytes that are not UTF-8, become U+FFFD.
  return text.dump(-1, ' ', false, json::error_handler_t::replace) + (cut ? "..." : "");
}

}  // namespace deltanet
