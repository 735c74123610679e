#include "data/tokenizer/json_field.h"

#include <algorithm>

#include "data/unicode/utf8.h"
#include "deltanet/error.h"

namespace deltanet::data {
namespace {

constexpr std::size_t kShown = 60;  // bytes of a value that an error quotes

}  // namespace

void JsonField::refuse(std::string_view given, std::string_view expected) const {
  throw Error("[load_tokenizer] " + *file_ + ": " + (path_.empty() ? "the file" : path_) + ": given " +
              std::string(given) + "; expected " + std::string(expected));
}

void JsonField::refuse(std::string_view expected) const {
  if (value_->is_structured()) {
    refuse((value_->is_array() ? "an array of " : "an object of ") + std::to_string(value_->size()), expected);
  }
  std::string given = value_->dump();
  if (given.size() > kShown) given = replace_invalid_utf8(given.substr(0, kShown)) + "...";
  refuse(given, expected);
}

const nlohmann::json& JsonField::object() const {
  if (!value_->is_object()) refuse("an object");
  return *value_;
}

std::optional<JsonField> JsonField::get(std::string_view key) const {
  const auto found = object().find(std::string(key));
  if (found == value_->end() || found->is_null()) return {};
  return JsonField(*found, *file_, path_.empty() ? std::string(key) : path_ + "." + std::string(key));
}

JsonField JsonField::at(std::string_view key) const {
  const std::optional<JsonField> field = get(key);
  if (!field) refuse("no \"" + std::string(key) + "\"", "one");
  return *field;
}

void JsonField::allow_only(std::initializer_list<std::string_view> keys) const {
  for (const auto& [key, value] : object().items()) {
    if (key == "type" || std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    std::string known;
    for (const std::string_view name : keys) known += (known.empty() ? "" : ", ") + std::string(name);
    refuse("an unknown field \"" + key + "\"", known.empty() ? "none besides type" : "only " + known);
  }
}

std::size_t JsonField::size() const {
  if (!value_->is_array()) refuse("an array");
  return value_->size();
}

JsonField JsonField::at(std::size_t index) const {
  return JsonField((*value_)[index], *file_, path_ + "[" + std::to_string(index) + "]");
}

const std::string& JsonField::string() const {
  if (!value_->is_string()) refuse("a string");
  return value_->get_ref<const std::string&>();
}

bool JsonField::boolean() const {
  if (!value_->is_boolean()) refuse("true or false");
  return value_->get<bool>();
}

double JsonField::number() const {
  if (!value_->is_number()) refuse("a number");
  return value_->get<double>();
}

int64_t JsonField::integer(int64_t lowest, int64_t highest) const {
  // Numbers beyond int64 are parsed as unsigned; none of our ranges reaches that far.
  const bool fits = value_->is_number_integer() &&
                    (!value_->is_number_unsigned() || value_->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
  if (!fits || value_->get<int64_t>() < lowest || value_->get<int64_t>() > highest) {
    refuse("an integer from " + std::to_string(lowest) + " to " + std::to_string(highest));
  }
  return value_->get<int64_t>();
}

char32_t JsonField::character() const {
  const std::string& text = string();
  if (text.empty() || first_char(text).size != text.size()) refuse("one character");
  return first_char(text).code;
}

bool JsonField::flag(std::string_view key, bool otherwise) const {
  const std::optional<JsonField> field = get(key);
  return field ? field->boolean() : otherwise;
}

}  // namespace deltanet::data
