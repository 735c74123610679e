#include "eval/record.h"

#include <algorithm>
#include <charconv>

#include "base/json.h"
#include "data/corpus/byte_source.h"
#include "data/unicode/utf8.h"
#include "deltanet/error.h"

namespace deltanet::eval {
namespace {

bool is_blank(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); });
}

std::string described(const nlohmann::json& value) {
  return value.is_string() ? in_quotes(value.get_ref<const std::string&>())
                           : in_quotes(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

void Record::refuse(std::string_view field, const std::string& given, const std::string& expected) const {
  throw Error("[eval] " + place() + ": " + std::string(field) + ": given " + given + "; expected " + expected);
}

const nlohmann::json& Record::at(std::string_view field) const {
  const nlohmann::json* value = &json_;
  for (std::string_view rest = field; !rest.empty();) {
    const std::size_t dot = std::min(rest.find('.'), rest.size());
    const std::string name(rest.substr(0, dot));
    rest.remove_prefix(std::min(dot + 1, rest.size()));
    if (!value->is_object() || !value->contains(name)) {
      std::string names;
      if (json_.is_object()) {
        for (const auto& [key, ignored] : json_.items()) names += (names.empty() ? "" : ", ") + in_quotes(key);
      }
      refuse(field, names.empty() ? "no such field" : "only " + names.substr(0, 300), "this field");
    }
    value = &(*value)[name];
  }
  return *value;
}

const std::string& Record::text(std::string_view field) const {
  const nlohmann::json& value = at(field);
  if (!value.is_string()) refuse(field, described(value), "a text");
  return value.get_ref<const std::string&>();
}

const std::string& Record::words(std::string_view field) const {
  const std::string& value = text(field);
  if (is_blank(value)) refuse(field, in_quotes(value), "a text that is not blank");
  return value;
}

std::vector<std::string> Record::texts(std::string_view field) const {
  const nlohmann::json& value = at(field);
  if (!value.is_array() || value.empty()) refuse(field, described(value), "a list of one or more texts");
  std::vector<std::string> list;
  for (const nlohmann::json& element : value) {
    const std::string place = std::string(field) + "[" + std::to_string(list.size()) + "]";
    if (!element.is_string()) refuse(place, described(element), "a text");
    list.push_back(element.get<std::string>());
    if (is_blank(list.back())) refuse(place, in_quotes(list.back()), "a text that is not blank");
  }
  return list;
}

int64_t Record::integer(std::string_view field, int64_t low, int64_t high) const {
  const nlohmann::json& value = at(field);
  int64_t number = low - 1;
  if (value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX)) {
    number = value.get<int64_t>();
  } else if (value.is_string()) {
    const std::string& digits = value.get_ref<const std::string&>();
    const char* end = digits.data() + digits.size();
    if (std::from_chars(digits.data(), end, number).ptr != end) number = low - 1;
  } else if (value.is_boolean()) {
    number = value.get<bool>() ? 1 : 0;
  }
  if (number < low || number > high) {
    refuse(field, described(value), "a number from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return number;
}

void read_records(const std::filesystem::path& file, const std::function<bool(const Record&)>& take) {
  const std::string name = file.string();
  const auto source = data::open_bytes(file);
  std::string waiting;
  int64_t number = 0;
  const auto line = [&](std::string_view text) {
    ++number;
    if (is_blank(text)) return true;
    const std::string place = name + ": line " + std::to_string(number);
    if (!data::is_valid_utf8(text)) throw Error("[eval] " + place + ": given invalid UTF-8; expected valid UTF-8");
    return take(Record(parse_json(text, "eval " + place), name, number));
  };
  for (std::string_view bytes; !(bytes = source->next()).empty();) {
    waiting += bytes;
    std::size_t begin = 0;
    for (std::size_t end; (end = waiting.find('\n', begin)) != std::string::npos; begin = end + 1) {
      if (!line(std::string_view(waiting).substr(begin, end - begin))) return;
    }
    waiting.erase(0, begin);
  }
  if (!waiting.empty()) line(waiting);
}

}  // namespace deltanet::eval
