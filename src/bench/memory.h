#pragma once

#include <cstdint>
#include <string>

#include "deltanet/recurrence.h"

// What backward takes beyond the tensors of its caller. Linux only; throws Error elsewhere.

namespace deltanet::bench {

struct BackwardMemory {
  int64_t tensors = 0;  // bytes of inputs, upstream gradient and gradients
  int64_t extra = 0;    // peak of the process above what it held before backward
  double ratio() const { return static_cast<double>(extra) / static_cast<double>(tensors); }
};

// In this process, where memory that was taken before and kept for reuse is not seen.
BackwardMemory measure_backward_memory_here(const std::string& label, const Shape& shape, int threads);

// In a process of its own: this program, run again as `deltanet bench memory`.
BackwardMemory measure_backward_memory(const std::string& label, const Shape& shape, int threads);

// A field of /proc/self/status, in bytes, such as VmHWM, the peak.
int64_t process_memory(const std::string& field);

}  // namespace deltanet::bench
