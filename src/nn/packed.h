#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace deltanet::nn {

// Packed sequences: sequence n is the rows [offsets[n], offsets[n+1]). Throws Error, naming the operation, unless
// offsets start at 0 and never decrease.
void check_offsets(const std::string& operation, std::span<const int64_t> offsets);

}  // namespace deltanet::nn
