#include "nn/packed.h"

#include <string>

#include "deltanet/error.h"

namespace deltanet::nn {

void check_offsets(std::string_view operation, std::span<const int64_t> offsets) {
  if (offsets.empty() || offsets[0] != 0)
    throw Error("[" + std::string(operation) + "] offsets: given " +
                (offsets.empty() ? "none" : std::to_string(offsets[0]) + " first") + "; expected 0 first");
  for (std::size_t n = 1; n < offsets.size(); ++n) {
    if (offsets[n] < offsets[n - 1])
      throw Error("[" + std::string(operation) + "] offsets: given " + std::to_string(offsets[n]) + " after " +
                  std::to_string(offsets[n - 1]) + "; expected no decrease");
  }
}

}  // namespace deltanet::nn
