#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace deltanet::eval {

// A line of a file of JSON lines. Every complaint names the file, the line and the field.
class Record {
 public:
  Record(nlohmann::json json, const std::string& file, int64_t line)
      : json_(std::move(json)), file_(file), line_(line) {}

  // "choices.text" is the field "text" of the field "choices".
  const std::string& text(std::string_view field) const;                     // may be empty
  const std::string& words(std::string_view field) const;                    // not blank
  std::vector<std::string> texts(std::string_view field) const;              // one or more, none of them blank
  int64_t integer(std::string_view field, int64_t low, int64_t high) const;  // also as a text, "3"

  std::string place() const { return file_ + ": line " + std::to_string(line_); }
  [[noreturn]] void refuse(std::string_view field, const std::string& given, const std::string& expected) const;

 private:
  const nlohmann::json& at(std::string_view field) const;

  nlohmann::json json_;
  const std::string& file_;
  int64_t line_;
};

// The lines of a .jsonl, .jsonl.gz or .jsonl.zst, blank ones left out, until `take` returns false.
void read_records(const std::filesystem::path& file, const std::function<bool(const Record&)>& take);

}  // namespace deltanet::eval
