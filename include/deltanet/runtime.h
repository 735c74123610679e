#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace deltanet {

std::string version();

// SIMD targets that this CPU supports, best first ("AVX3" is Highway's name for AVX-512).
std::vector<std::string> simd_targets();
std::string simd_target();  // the one in use
// Forces one of simd_targets() for this process; an empty name restores the best. Throws Error for any other.
// The environment variable DELTANET_SIMD does the same at start-up.
void set_simd_target(std::string_view name);

int default_threads();

}  // namespace deltanet
