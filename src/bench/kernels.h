#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/rows.h"
#include "bench/work.h"

// Time of the kernels of several rows against length, forward and backward.

namespace deltanet::bench {

struct KernelOptions {
  std::vector<std::string> labels;
  Shape shape{1, 0, 8, 0, 128, 128, 0};  // T comes with each measurement
  int threads = 1;
  int repeats = 0;       // 0: as many as fit into `seconds`
  double seconds = 2.0;  // for one row at one length
  bool with_backward = true, l2norm = true;
  Clock clock = Clock::kWall;
};

// One row at one length.
struct KernelTimes {
  std::string label;
  double reference_error = 0, recurrent_error = 0;
  std::optional<double> forward_flops = {}, training_flops = {};
  std::vector<double> forward = {}, backward = {};  // seconds, one per round; none for a row that is wrong

  bool correct() const { return reference_error <= kReferenceTolerance && recurrent_error <= kRecurrentTolerance; }
};

// Forward, or with `training` forward and backward, in figures: milliseconds with their spread over the rounds, speed
// as a share of the machine's peak, and the median of the ratios to a baseline within a round. NaN: not known.
struct KernelFigures {
  int repeats = 0;
  double ms, p10, p90, shortest, longest, tokens_per_second, gflops, share, against_baseline;
};
KernelFigures figures_of(const KernelTimes& row, const KernelTimes* baseline, bool training, double tokens,
                         double peak);

class KernelBench {
 public:
  // Throws Error for a name that is not a row.
  KernelBench(const KernelOptions& options, Report report);

  // First of all: every row against the reference, which does not depend on the length.
  void check();
  // Of that length, why it cannot be measured: too little memory.
  std::optional<std::string> obstacle(int64_t length) const;
  std::vector<KernelTimes> measure(int64_t length);
  double peak() const { return peak_; }  // GFLOP/s, the best of all rounds so far

 private:
  struct Run;
  Shape at(int64_t length) const;
  void time(std::vector<Run>& runs);
  void sample_peak();

  const KernelOptions options_;
  const Report report_;
  std::vector<BenchRow> rows_;
  std::vector<double> reference_errors_;
  double peak_ = 0;
};

}  // namespace deltanet::bench
