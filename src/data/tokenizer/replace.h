#pragma once

#include <string>
#include <string_view>

#include "data/regex/regex.h"
#include "data/tokenizer/json_field.h"

namespace deltanet::data {

// {"String": "..."} or {"Regex": "..."}
Regex read_pattern(const JsonField& field);

// "Replace" of tokenizer.json, which is a normalizer and a decoder.
class Replace {
 public:
  explicit Replace(const JsonField& field);

  // removed_start, if given, is set when the beginning of the text was replaced by nothing.
  std::string apply(std::string_view text, bool* removed_start = nullptr) const;

 private:
  Regex pattern_;
  std::string content_;
};

}  // namespace deltanet::data
