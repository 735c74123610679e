#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// Text as the tasks of lm-evaluation-harness handle it, that is as Python's str does. All texts are valid UTF-8.

namespace deltanet::eval {

bool is_python_space(char32_t code);  // str.isspace, and \s of Python's re

std::string strip_left(std::string_view text);
std::string strip_right(std::string_view text);
std::string strip(std::string_view text);

std::string lower(std::string_view text);
std::string capitalized(std::string_view text);  // str.capitalize: the first letter large, all others small
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

int64_t characters(std::string_view text);  // len
// len(re.split(r"\s+", text)): empty pieces at the ends count.
int64_t pieces_between_blanks(std::string_view text);

}  // namespace deltanet::eval
