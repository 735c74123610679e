#include "data/regex/pattern_reader.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

#include "data/unicode/char_properties.h"
#include "data/unicode/utf8.h"
#include "deltanet/error.h"

namespace deltanet::data {

PatternReader::PatternReader(std::string_view pattern) : pattern_(pattern) {
  if (pattern.size() > kLongest) refuse("more than " + std::to_string(kLongest) + " bytes");
  if (!is_valid_utf8(pattern)) refuse("bytes that are not UTF-8");
}

void PatternReader::refuse(const std::string& what) const {
  throw Error("[regex] pattern: given \"" + std::string(pattern_.substr(0, kLongest)) + "\", which has " + what +
              " at byte " + std::to_string(at_) + "; expected a pattern without it");
}

char32_t PatternReader::take_char() {
  if (at_ == pattern_.size()) refuse("an end too early");
  const Utf8Char c = first_char(pattern_.substr(at_));
  at_ += c.size;
  return c.code;
}

std::optional<CharSet> PatternReader::set_escape(bool in_brackets) {
  std::optional<CharSet> found;
  const char letter = pattern_[at_ + 1];
  switch (letter) {
    case 's':
    case 'S':
      found = category("whitespace");
      break;
    case 'd':
    case 'D':
      found = category("nd");
      break;
    case 'w':
    case 'W':
      found = in_brackets ? word() : word_alone();
      break;
    case 'h':
    case 'H':
      found = hexadecimal();
      break;
    case 'p':
    case 'P':
      return property();
    default:
      return {};
  }
  at_ += 2;
  return letter < 'a' ? ~*found : *found;
}

CharSet PatternReader::property() {
  bool negated = pattern_[at_ + 1] == 'P';
  const std::size_t end = pattern_.find('}', at_);
  if (!pattern_.substr(at_ + 2).starts_with("{") || end == std::string_view::npos) refuse("a \\p without braces");
  std::string_view name = pattern_.substr(at_ + 3, end - at_ - 3);
  if (name.starts_with('^')) {
    negated = !negated;
    name.remove_prefix(1);
  }
  const auto found = property_set(name);
  if (!found) refuse("an unknown property");
  at_ = end + 1;
  return negated ? ~*found : *found;
}

char32_t PatternReader::char_escape() {
  const char letter = pattern_[at_ + 1];
  constexpr std::pair<char, char32_t> kControls[] = {{'t', 0x09}, {'n', 0x0A}, {'v', 0x0B}, {'f', 0x0C},
                                                     {'r', 0x0D}, {'a', 0x07}, {'e', 0x1B}};
  for (const auto& [name, code] : kControls) {
    if (name != letter) continue;
    at_ += 2;
    return code;
  }
  if (letter == 'x' || letter == 'u') return code_point();
  if (std::isalnum(static_cast<unsigned char>(letter))) refuse("an escape of this kind");
  ++at_;
  return take_char();
}

// \x41, \x{1F600}, \u5929
char32_t PatternReader::code_point() {
  std::string_view digits = pattern_.substr(at_ + 2, pattern_[at_ + 1] == 'x' ? 2 : 4);
  std::size_t consumed = 2 + digits.size();
  const bool braces = digits.starts_with('{') && pattern_[at_ + 1] == 'x';
  if (braces) {
    const std::size_t end = std::min(pattern_.find('}', at_), pattern_.size());
    digits = pattern_.substr(at_ + 3, end - at_ - 3);
    consumed = end + 1 - at_;
  }
  uint32_t code = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
  const bool whole = error == std::errc() && end == digits.data() + digits.size() &&
                     at_ + consumed <= pattern_.size() && (braces || digits.size() + 2 == consumed);
  // \x80 and above are bytes to Oniguruma.
  const bool is_byte = pattern_[at_ + 1] == 'x' && !braces;
  if (!whole ||
      digits.size() < (braces    ? 1u
                       : is_byte ? 2u
                                 : 4u) ||
      code > (is_byte ? 0x7Fu : kLastChar) || (code >= 0xD800 && code < 0xE000)) {
    refuse("a wrong code of a character");
  }
  at_ += consumed;
  return code;
}

CharSet PatternReader::bracket(bool& negated) {
  ++at_;
  negated = starts_with("^");
  if (negated) ++at_;
  CharSet members;
  bool first = true, behind_member = false;  // behind what cannot begin a range
  while (first || !starts_with("]")) {
    if (at_ == pattern_.size()) refuse("a bracket without its end");
    if (starts_with("&&")) refuse("an intersection of sets");
    if (starts_with("-") && behind_member && pattern_.substr(at_ + 1, 1) != "]") refuse("a hyphen behind a set");
    const std::optional<CharSet> set = set_member();
    behind_member = true;
    if (set) {
      members = members | *set;
    } else {
      behind_member = range(members);
    }
    first = false;
  }
  ++at_;
  return members;
}

// A single character, or with a hyphen behind it a range; was it a range?
bool PatternReader::range(CharSet& members) {
  const char32_t low = bracket_char();
  if (!starts_with("-") || pattern_.substr(at_ + 1, 1) == "]") {
    members = members | CharSet::one(low);
    return false;
  }
  ++at_;
  if (starts_with("[") || (starts_with("\\") && set_escape_follows())) refuse("a range that ends with a set");
  const char32_t high = bracket_char();
  if (high < low) refuse("a range whose ends are in the wrong order");
  members = members | CharSet::range(low, high);
  return true;
}

bool PatternReader::set_escape_follows() const {
  return at_ + 1 < pattern_.size() && std::string_view("sSdDwWhHpP").find(pattern_[at_ + 1]) != std::string_view::npos;
}

std::optional<CharSet> PatternReader::set_member() {
  if (starts_with("[:")) return posix_set();
  if (starts_with("[")) refuse("brackets inside of brackets");
  if (starts_with("\\") && set_escape_follows()) return set_escape(/*in_brackets=*/true);
  return {};
}

char32_t PatternReader::bracket_char() {
  if (!starts_with("\\")) return take_char();
  if (at_ + 1 == pattern_.size()) refuse("a backslash at its end");
  if (!starts_with("\\b")) return char_escape();
  at_ += 2;
  return '\b';
}

CharSet PatternReader::posix_set() {
  const std::size_t end = pattern_.find(":]", at_ + 2);
  if (end == std::string_view::npos) refuse("a bracket without its end");
  std::string_view name = pattern_.substr(at_ + 2, end - at_ - 2);
  const bool negated = name.starts_with('^');
  if (negated) name.remove_prefix(1);
  const auto found = data::posix_set(name);
  if (!found) refuse("an unknown set");
  at_ = end + 2;
  return negated ? ~*found : *found;
}

}  // namespace deltanet::data
