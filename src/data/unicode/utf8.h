#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace deltanet::data {

inline constexpr char32_t kReplacement = 0xFFFD;
inline constexpr std::string_view kReplacementText = "\xEF\xBF\xBD";

struct Utf8Char {
  char32_t code = kReplacement;
  std::size_t size = 0;  // bytes; of an invalid character, its maximal part that could have begun a valid one, or 1
  bool valid = false;
  bool truncated = false;  // invalid only because the text ends
};

Utf8Char first_char(std::string_view text);  // text is not empty
Utf8Char last_char(std::string_view text);   // text is valid and not empty

bool is_valid_utf8(std::string_view text);
bool is_ascii(std::string_view text);
void append_utf8(std::string& text, char32_t code);

// The text with U+FFFD for each maximal invalid part.
std::string replace_invalid_utf8(std::string_view text);

// What Rust's char methods and its regex crate mean by these words, since that is how tokenizer.json is defined.
bool is_space(char32_t code);
bool is_numeric(char32_t code);
bool is_punctuation(char32_t code);
bool is_word(char32_t code);  // \w

// Has this character a part in its normal forms? Newer ones than they know stay as they are.
bool is_known_to_normal_forms(char32_t code);

}  // namespace deltanet::data
