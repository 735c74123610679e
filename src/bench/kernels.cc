#include "bench/kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "deltanet/recurrence.h"

namespace deltanet::bench {
namespace {

constexpr int kMinRepeats = 3, kMaxRepeats = 25;
constexpr double kPeakSeconds = 0.02;

}  // namespace

struct KernelBench::Run {
  BenchRow row;
  Work work;
  KernelTimes times;
  int repeats = 0;
};

KernelBench::KernelBench(const KernelOptions& options, Report report) : options_(options), report_(std::move(report)) {
  for (const std::string& label : options_.labels) rows_.push_back(bench_row(label, options_.l2norm));
}

void KernelBench::check() {
  for (int i = 0; i < 10; ++i) sample_peak();
  for (const BenchRow& row : rows_) {
    report_(fmt::format("{}: against the reference", row.label));
    reference_errors_.push_back(error_against_reference(row, at(1), options_.with_backward, options_.threads));
  }
}

Shape KernelBench::at(int64_t length) const {
  Shape shape = options_.shape;
  if (shape.U == 0) shape.U = shape.H;
  shape.N = shape.B;
  shape.T = length;
  return shape;
}

void KernelBench::sample_peak() { peak_ = std::max(peak_, measure_peak(options_.threads, kPeakSeconds)); }

std::optional<std::string> KernelBench::obstacle(int64_t length) const {
  const auto needed = static_cast<double>(workspace_bytes(rows_, at(length), options_.with_backward));
  const auto available = static_cast<double>(available_bytes());
  if (needed <= 0.8 * available) return std::nullopt;
  return fmt::format("needs {:.1f} GB of memory, {:.1f} GB are available", needed * 1e-9, available * 1e-9);
}

std::vector<KernelTimes> KernelBench::measure(int64_t length) {
  const Shape shape = at(length);
  Workspace workspace(shape);
  std::vector<Run> runs;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const BenchRow& row = rows_[i];
    Run run{row, workspace.work(row.spec, options_.with_backward), {row.label, reference_errors_[i]}};
    run.times.forward_flops = forward_flops(row.spec, shape);
    run.times.training_flops = training_flops(row.spec, shape);
    report_(fmt::format("T={}: {}: chunkwise against token-recurrent", length, row.label));
    run.times.recurrent_error = error_against_recurrent(row, workspace, run.work);
    runs.push_back(std::move(run));
  }
  time(runs);
  std::vector<KernelTimes> times;
  times.reserve(runs.size());
  for (Run& run : runs) times.push_back(std::move(run.times));
  return times;
}

void KernelBench::time(std::vector<Run>& runs) {
  Options options;
  options.threads = options_.threads;
  const auto forward_seconds = [&](Run& run) {
    return seconds_of([&] { forward(run.row.spec, run.work.inputs, run.work.outputs, options); }, options_.clock);
  };
  const auto backward_seconds = [&](Run& run) {
    if (!options_.with_backward) return 0.0;
    return seconds_of([&] { backward(run.row.spec, run.work.inputs, run.work.upstream, run.work.gradients, options); },
                      options_.clock);
  };

  int rounds = 0;
  for (Run& run : runs) {
    if (!run.times.correct()) continue;
    report_(fmt::format("T={}: {}: warming up", run.work.outputs.o.shape[1], run.row.label));
    const double once = forward_seconds(run) + backward_seconds(run);
    run.repeats = std::clamp(static_cast<int>(options_.seconds / once), kMinRepeats, kMaxRepeats);
    if (options_.repeats > 0) run.repeats = options_.repeats;
    rounds = std::max(rounds, run.repeats);
  }
  // All rows take part in every round, as long as they have repeats left: noise hits them alike.
  for (int round = 0; round < rounds; ++round) {
    sample_peak();
    for (std::size_t i = 0; i < runs.size(); ++i) {
      Run& run = runs[round % 2 == 0 ? i : runs.size() - 1 - i];
      if (round >= run.repeats) continue;
      report_(fmt::format("T={}: {}: round {} of {}", run.work.outputs.o.shape[1], run.row.label, round + 1, rounds));
      run.times.forward.push_back(forward_seconds(run));
      if (options_.with_backward) run.times.backward.push_back(backward_seconds(run));
    }
  }
}

KernelFigures figures_of(const KernelTimes& row, const KernelTimes* baseline, bool training, double tokens,
                         double peak) {
  const auto seconds_of_rounds = [&](const KernelTimes& times) {
    return training ? sums(times.forward, times.backward) : times.forward;
  };
  const std::vector<double> seconds = seconds_of_rounds(row);
  const std::optional<double> flops = training ? row.training_flops : row.forward_flops;
  const double middle = median(seconds), gflops = flops ? *flops / middle * 1e-9 : std::nan("");
  return {.repeats = static_cast<int>(seconds.size()),
          .ms = middle * 1e3,
          .p10 = quantile(seconds, 0.1) * 1e3,
          .p90 = quantile(seconds, 0.9) * 1e3,
          .shortest = quantile(seconds, 0) * 1e3,
          .longest = quantile(seconds, 1) * 1e3,
          .tokens_per_second = tokens / middle,
          .gflops = gflops,
          .share = gflops / peak,
          .against_baseline = median(ratios(seconds, baseline ? seconds_of_rounds(*baseline) : std::vector<double>()))};
}

}  // namespace deltanet::bench
