#pragma once

#include <optional>
#include <string_view>

#include "data/unicode/unicode.h"

namespace deltanet::data {

inline constexpr char32_t kLastChar = 0x10FFFF;

CharSet category(std::string_view name);  // a set of the tables, or a group of them such as "l"; it exists

// What Oniguruma means by \p{name}, [:name:], \w in brackets, \w outside of them and \h.
std::optional<CharSet> property_set(std::string_view name);
std::optional<CharSet> posix_set(std::string_view name);
CharSet word();
CharSet word_alone();
CharSet hexadecimal();

}  // namespace deltanet::data
