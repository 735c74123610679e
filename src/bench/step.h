#pragma once

#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/step_kernel.h"
#include "bench/work.h"

// The latency of one token, as in text generation.

namespace deltanet::bench {

struct StepOptions {
  std::vector<std::string> labels;
  Shape shape{1, 1, 8, 8, 128, 128, 1};
  int threads = 1;
  int rounds = 15;
};

struct StepTimes {
  std::string label;
  double error = 0;             // against the reference; a row that is wrong is not timed
  std::vector<double> seconds;  // per step, one per round

  bool correct() const { return error <= kReferenceTolerance; }
};

// On the SIMD target in use.
struct StepResult {
  std::vector<StepTimes> rows;
  StepKernelResult kernel;
};

StepResult measure_steps(const StepOptions& options, const Report& report);

}  // namespace deltanet::bench
