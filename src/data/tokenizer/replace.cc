#include "data/tokenizer/replace.h"

namespace deltanet::data {

Regex read_pattern(const JsonField& field) {
  field.allow_only({"String", "Regex"});
  if (const auto literal = field.get("String")) {
    const std::string& text = literal->string();
    return literal->naming([&] { return Regex::literal(text); });
  }
  const JsonField regex = field.at("Regex");
  const std::string& pattern = regex.string();
  return regex.naming([&] { return Regex(pattern); });
}

Replace::Replace(const JsonField& field)
    : pattern_(read_pattern(field.at("pattern"))), content_(field.at("content").string()) {
  field.allow_only({"pattern", "content"});
}

std::string Replace::apply(std::string_view text, bool* removed_start) const {
  std::string result;
  result.reserve(text.size());
  pattern_.for_each(text, [&](std::size_t begin, std::size_t end, bool is_match) {
    result += is_match ? std::string_view(content_) : text.substr(begin, end - begin);
    if (removed_start != nullptr && is_match && begin == 0 && end > 0 && content_.empty()) *removed_start = true;
  });
  return result;
}

}  // namespace deltanet::data
