#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace deltanet::data {

// A value of a JSON file that knows where it stands, so that every complaint names the file and the field:
// "[load_tokenizer] /models/x/tokenizer.json: model.merges[3]: given 7; expected a string".
class JsonField {
 public:
  JsonField(const nlohmann::json& value, const std::string& file, std::string path)
      : value_(&value), file_(&file), path_(std::move(path)) {}

  [[noreturn]] void refuse(std::string_view given, std::string_view expected) const;
  [[noreturn]] void refuse(std::string_view expected) const;  // given: the value itself

  // Members of an object. get(): absent and null are the same.
  std::optional<JsonField> get(std::string_view key) const;
  JsonField at(std::string_view key) const;
  void allow_only(std::initializer_list<std::string_view> keys) const;  // besides "type"

  // Elements of an array.
  std::size_t size() const;
  JsonField at(std::size_t index) const;

  const std::string& string() const;
  bool boolean() const;
  double number() const;
  int64_t integer(int64_t lowest, int64_t highest) const;
  char32_t character() const;  // a string of one character
  const nlohmann::json& object() const;

  bool is_string() const { return value_->is_string(); }

  // Members with a default.
  bool flag(std::string_view key, bool otherwise) const;

  // Runs a function that may throw Error, and names this field in it.
  template <class Function>
  auto naming(const Function& function) const;

 private:
  const nlohmann::json* value_;
  const std::string* file_;
  std::string path_;
};

template <class Function>
auto JsonField::naming(const Function& function) const {
  try {
    return function();
  } catch (const std::exception& error) {
    refuse(error.what());
  }
}

}  // namespace deltanet::data
