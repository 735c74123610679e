#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace deltanet {

// Number of single-character edits between two names (Levenshtein): what a mistyped name may have meant.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The end of an error about an unknown name: the one that was probably meant, or else all of them.
std::string suggestion(std::string_view name, const std::vector<std::string_view>& known);

}  // namespace deltanet
