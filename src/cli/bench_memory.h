#pragma once

#include <cstdint>
#include <string>

#include "deltanet/recurrence.h"

namespace deltanet::cli {

struct BackwardMemory {
  int64_t tensors = 0;  // bytes of inputs, upstream gradient and gradients
  int64_t extra = 0;    // peak of the process above what it held before backward
  double ratio() const { return static_cast<double>(extra) / static_cast<double>(tensors); }
};

// Measured in a process of its own: memory that this one has already taken and keeps for reuse would not be seen.
// Linux only; throws Error elsewhere.
BackwardMemory measure_backward_memory(const std::string& label, const Shape& shape, int threads);

}  // namespace deltanet::cli
