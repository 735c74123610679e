#pragma once

#include <vector>

#include "bench/work.h"

namespace deltanet::bench {

// The decode step of all value heads by the fused kernel and by a plain loop in four passes, on equal states.
struct StepKernelResult {
  double error = 0;                        // between the two; nothing is timed if it is large
  std::vector<double> step, plain, ratio;  // seconds per token, and plain / step; one per round

  bool correct() const { return error <= kReferenceTolerance; }
};

StepKernelResult measure_step_kernel(const Shape& shape, int rounds);

}  // namespace deltanet::bench
