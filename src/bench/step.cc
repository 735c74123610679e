#include "bench/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "base/arena.h"
#include "bench/rows.h"
#include "deltanet/deltanet.h"
#include "recurrence/arrays.h"

namespace deltanet::bench {
namespace {

constexpr uint64_t kSeed = 11;

// One token in place: the final states overwrite the initial ones.
class DecodeStep {
 public:
  DecodeStep(const BenchRow& row, const Shape& shape, int threads)
      : row_(row), start_(random_inputs(row.spec, shape, kSeed)) {
    options_.mode = Mode::kRecurrent;
    options_.threads = threads;
    for (const auto& arg : input_args()) {
      const auto found = start_.find(std::string(arg.name));
      if (found != start_.end()) inputs_.*arg.member = memory_[found->first] = take(found->second.shape);
    }
    outputs_ = {take(output_shape(row.spec, "o", shape)), memory_["S0"], memory_["A0"], memory_["P0"], memory_["G0"]};
    restart();
  }

  // The states after thousands of steps with the same token say nothing about a model; every sample starts anew.
  void restart() {
    for (const auto& [name, array] : start_) std::copy(array.data.begin(), array.data.end(), memory_.at(name).data);
  }

  void run() { forward(row_.spec, inputs_, outputs_, options_); }

 private:
  Tensor take(const std::vector<int64_t>& dims) { return {arena_.take_zeros(Tensor(nullptr, dims).size()), dims}; }

  const BenchRow row_;
  const Arrays start_;
  Options options_;
  Arena arena_;
  std::map<std::string, Tensor> memory_;  // of the inputs; states may be absent
  Inputs inputs_;
  Outputs outputs_;
};

double step_error(const BenchRow& row, const Shape& shape, int threads) {
  const Arrays inputs = random_inputs(row.spec, shape, kSeed);
  Options options;
  options.mode = Mode::kRecurrent;
  options.threads = threads;
  return relative_error(forward_arrays(row.spec, inputs, options), reference_forward(row.spec, inputs));
}

std::vector<StepTimes> measure_rows(const StepOptions& options, const Report& report) {
  std::vector<StepTimes> results;
  std::vector<std::unique_ptr<DecodeStep>> steps;
  std::vector<int> calls;
  for (const std::string& label : options.labels) {
    report(fmt::format("{}: {}", simd_target(), label));
    const BenchRow row = bench_row(label, true);
    results.push_back({label, step_error(row, options.shape, options.threads), {}});
    steps.push_back(std::make_unique<DecodeStep>(row, options.shape, options.threads));
    steps.back()->run();
    const double once = seconds_of([&] { steps.back()->run(); });
    calls.push_back(std::clamp(static_cast<int>(3e-3 / once), 1, 1000));
  }
  for (int round = 0; round < options.rounds; ++round) {
    report(fmt::format("{}: round {} of {}", simd_target(), round + 1, options.rounds));
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (!results[i].correct()) continue;
      steps[i]->restart();
      steps[i]->run();
      const double elapsed = seconds_of([&] {
        for (int call = 0; call < calls[i]; ++call) steps[i]->run();
      });
      results[i].seconds.push_back(elapsed / calls[i]);
    }
  }
  return results;
}

}  // namespace

StepResult measure_steps(const StepOptions& options, const Report& report) {
  return {measure_rows(options, report), measure_step_kernel(options.shape, options.rounds)};
}

}  // namespace deltanet::bench
