#include "data/unicode/utf8.h"

#include <utf8proc.h>

#include <array>
#include <bitset>
#include <cstdint>
#include <cstring>

#include "data/unicode/char_properties.h"

namespace deltanet::data {
namespace {

bool is_continuation(unsigned char byte) { return (byte & 0xC0) == 0x80; }

enum Kind : std::size_t { kNumeric, kPunctuation, kWord, kUnknown, kKinds };

bool has(Kind kind, char32_t code) {
  struct Kinds {
    CharClasses classes;
    std::array<std::bitset<kKinds>, 1 << kKinds> of_class;

    explicit Kinds(const std::array<CharSet, kKinds>& sets) : classes(sets) {
      for (std::size_t kind = 0; kind < kKinds; ++kind) {
        for (const uint8_t member : classes.members(kind)) of_class[member].set(kind);
      }
    }
  };
  static const Kinds kTable({category("rust numeric"), category("rust punctuation"), category("rust word"),
                             category("unknown to normal forms")});
  return kTable.of_class[kTable.classes.of(code)][kind];
}

}  // namespace

Utf8Char first_char(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1, true, false};

  // Table 3-7 of the Unicode standard: the lead byte gives the length and bounds the second byte.
  std::size_t size = 0;
  unsigned char low = 0x80, high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    size = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    size = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    size = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {kReplacement, 1, false, false};
  }
  char32_t code = lead & (0xFFu >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    if (i == text.size()) return {kReplacement, i, false, true};
    if (byte(i) < low || byte(i) > high) return {kReplacement, i, false, false};
    code = code << 6 | (byte(i) & 0x3Fu);
    low = 0x80;
    high = 0xBF;
  }
  return {code, size, true, false};
}

Utf8Char last_char(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && is_continuation(static_cast<unsigned char>(text[begin]))) --begin;
  return first_char(text.substr(begin));
}

bool is_ascii(std::string_view text) {
  std::size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if (word & 0x8080808080808080u) return false;
  }
  for (; i < text.size(); ++i) {
    if (static_cast<unsigned char>(text[i]) >= 0x80) return false;
  }
  return true;
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    if (text.size() >= 8 && is_ascii(text.substr(0, 8))) {
      text.remove_prefix(8);
      continue;
    }
    const Utf8Char c = first_char(text);
    if (!c.valid) return false;
    text.remove_prefix(c.size);
  }
  return true;
}

void append_utf8(std::string& text, char32_t code) {
  if (code < 0x80) {
    text += static_cast<char>(code);
    return;
  }
  utf8proc_uint8_t bytes[4];
  const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes);
  for (utf8proc_ssize_t i = 0; i < size; ++i) text += static_cast<char>(bytes[i]);
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char c = first_char(text);
    result += c.valid ? text.substr(0, c.size) : kReplacementText;
    text.remove_prefix(c.size);
  }
  return result;
}

bool is_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
         code == 0x3000;
}

bool is_numeric(char32_t code) {
  if (code < 0x80) return code >= '0' && code <= '9';
  return has(kNumeric, code);
}

bool is_punctuation(char32_t code) { return has(kPunctuation, code); }

bool is_word(char32_t code) { return has(kWord, code); }

bool is_known_to_normal_forms(char32_t code) { return !has(kUnknown, code); }

}  // namespace deltanet::data
