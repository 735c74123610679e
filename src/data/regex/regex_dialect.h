#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/unicode/unicode.h"

namespace deltanet::data {

// A pattern in the syntax that PCRE2 shares with Oniguruma, with sets of characters as its only atoms.
struct RegexParts {
  struct Part {
    std::string syntax;
    int set = -1;  // an index of sets, which stands behind the syntax; -1: none
  };
  std::vector<Part> parts;
  std::vector<CharSet> sets;
};

// Reads a pattern as Oniguruma does. Throws Error for what the two might not do alike.
RegexParts parse_oniguruma(std::string_view pattern);

}  // namespace deltanet::data
