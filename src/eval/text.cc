#include "eval/text.h"

#include "data/unicode/unicode.h"
#include "data/unicode/utf8.h"

namespace deltanet::eval {
namespace {

// The capital of a small letter: what becomes it in small.
char32_t to_upper(char32_t code) {
  if (code < 0x80) return code >= 'a' && code <= 'z' ? code - 32 : code;
  constexpr char32_t kLetters = 0x1F000;  // all capitals lie below
  for (char32_t capital = 0x80; capital < kLetters; ++capital) {
    if (capital != code && data::to_lower(capital) == code) return capital;
  }
  return code;
}

}  // namespace

bool is_python_space(char32_t code) { return data::is_space(code) || (code >= 0x1C && code <= 0x1F); }

std::string strip_left(std::string_view text) {
  while (!text.empty()) {
    const data::Utf8Char c = data::first_char(text);
    if (!is_python_space(c.code)) break;
    text.remove_prefix(c.size);
  }
  return std::string(text);
}

std::string strip_right(std::string_view text) {
  while (!text.empty()) {
    const data::Utf8Char c = data::last_char(text);
    if (!is_python_space(c.code)) break;
    text.remove_suffix(c.size);
  }
  return std::string(text);
}

std::string strip(std::string_view text) { return strip_left(strip_right(text)); }

std::string lower(std::string_view text) {
  std::string small;
  small.reserve(text.size());
  while (!text.empty()) {
    const data::Utf8Char c = data::first_char(text);
    data::append_utf8(small, data::to_lower(c.code));
    text.remove_prefix(c.size);
  }
  return small;
}

std::string capitalized(std::string_view text) {
  if (text.empty()) return {};
  const data::Utf8Char first = data::first_char(text);
  std::string capital;
  data::append_utf8(capital, to_upper(first.code));
  return capital + lower(text.substr(first.size));
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string replaced;
  for (std::size_t begin = 0;;) {
    const std::size_t found = text.find(from, begin);
    replaced += text.substr(begin, found == text.npos ? text.npos : found - begin);
    if (found == text.npos) return replaced;
    replaced += to;
    begin = found + from.size();
  }
}

int64_t characters(std::string_view text) {
  int64_t count = 0;
  for (const char byte : text) count += (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  return count;
}

int64_t pieces_between_blanks(std::string_view text) {
  int64_t pieces = 1;
  for (bool blank_before = false; !text.empty();) {
    const data::Utf8Char c = data::first_char(text);
    const bool blank = is_python_space(c.code);
    pieces += blank && !blank_before;
    blank_before = blank;
    text.remove_prefix(c.size);
  }
  return pieces;
}

}  // namespace deltanet::eval
