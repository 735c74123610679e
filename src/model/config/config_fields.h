#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deltanet {

// Limits that no real model reaches, so that sizes of a broken file fail here and not in an allocation.
inline constexpr int64_t kLargestSize = int64_t{1} << 20;
inline constexpr int64_t kLargestLayers = 4096;
inline constexpr int64_t kLargestHeads = int64_t{1} << 14;
inline constexpr int64_t kLargestHead = int64_t{1} << 12;
inline constexpr int64_t kLargestVocabulary = int64_t{1} << 24;

// A JSON object whose fields are read with checks. Every failure is an Error with the file, the field, what it holds
// and what was expected. A null counts as absent.
class Fields {
 public:
  Fields(std::string_view text, const std::string& file);

  std::string text(std::string_view key) const;
  std::string text_or(std::string_view key, std::string_view fallback) const;
  int64_t integer(std::string_view key, int64_t smallest, int64_t largest) const;
  int64_t integer_or(std::string_view key, int64_t fallback, int64_t smallest, int64_t largest) const;
  std::vector<int64_t> integers(std::string_view key, int64_t smallest, int64_t largest) const;
  double number_or(std::string_view key, double fallback, double smallest, double largest) const;
  bool flag_or(std::string_view key, bool fallback) const;
  std::optional<int64_t> id_or_none(std::string_view key, int64_t vocab_size) const;
  std::optional<int64_t> integer_or_none(std::string_view key) const;
  std::vector<std::pair<std::string, std::string>> object_or_empty(std::string_view key) const;  // values as text
  std::vector<Fields> objects_or_empty(std::string_view key) const;                              // an object or a list

  // Where the field is present it must hold one of these.
  void require_text(std::string_view key, std::initializer_list<std::string_view> allowed) const;
  void require_flag(std::string_view key, bool allowed) const;
  void require_null(std::string_view key) const;

  // Refuses a field that nothing has asked for so far, unless the JSON object `known` has it too.
  void refuse_others(std::string_view known) const;

  [[noreturn]] void fail(std::string_view key, const std::string& expected) const;

 private:
  struct Document;
  Fields(std::shared_ptr<const Document> document, std::string file, std::string prefix);
  [[noreturn]] void fail_missing(std::string_view key, const std::string& expected) const;

  std::shared_ptr<const Document> document_;
  std::string file_, prefix_;
};

}  // namespace deltanet
