#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace deltanet::nn {

// Packed sequences: sequence n is the tokens [offsets[n], offsets[n+1]). Throws Error, naming the operation, unless
// offsets start at 0 and never decrease.
void check_offsets(std::string_view operation, std::span<const int64_t> offsets);

}  // namespace deltanet::nn
