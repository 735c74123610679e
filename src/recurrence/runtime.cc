#include "deltanet/runtime.h"

#include "deltanet/error.h"
#include "simd/kernels.h"

namespace deltanet {

std::vector<std::string> simd_targets() { return simd::target_names(); }

std::string simd_target() { return simd::target_name(); }

void set_simd_target(std::string_view name) {
  if (simd::select_target(name)) return;
  std::string known;
  for (const std::string& target : simd::target_names()) known += (known.empty() ? "" : ", ") + target;
  throw Error("[set_simd_target] name: given \"" + std::string(name) + "\"; expected one of " + known);
}

}  // namespace deltanet
