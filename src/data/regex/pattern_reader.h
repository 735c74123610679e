#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "data/unicode/unicode.h"

namespace deltanet::data {

// Reads the characters and sets of a pattern in Oniguruma's dialect, and refuses what it does not know.
class PatternReader {
 protected:
  explicit PatternReader(std::string_view pattern);

  [[noreturn]] void refuse(const std::string& what) const;
  bool starts_with(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  char32_t take_char();

  std::optional<CharSet> set_escape(bool in_brackets);  // \s, \p{L}, ...; nothing is taken if there is none
  char32_t char_escape();                               // \n, \x41, \., ...
  CharSet bracket(bool& negated);                       // [...] without its negation

  std::string_view pattern_;
  std::size_t at_ = 0;

 private:
  static constexpr std::size_t kLongest = 64 << 10;  // bytes

  CharSet property();
  char32_t code_point();
  bool range(CharSet& members);
  bool set_escape_follows() const;
  std::optional<CharSet> set_member();
  char32_t bracket_char();
  CharSet posix_set();
};

}  // namespace deltanet::data
