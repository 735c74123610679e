#pragma once

#include <cstddef>
#include <string_view>

namespace deltanet {

// Number of single-character edits between two names (Levenshtein): what a mistyped name may have meant.
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace deltanet
