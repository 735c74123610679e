// `deltanet bench step`: the latency of one token, as in text generation.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "bench/measure.h"
#include "bench/step_kernel.h"
#include "cli/bench.h"
#include "bench/rows.h"
#include "bench/work.h"
#include "cli/json_file.h"
#include "cli/terminal.h"
#include "deltanet/deltanet.h"
#include "recurrence/arrays.h"

namespace deltanet::cli {
using namespace bench;
namespace {

constexpr uint64_t kSeed = 11;

struct Settings {
  std::vector<std::string> labels;
  Shape shape{1, 1, 8, 8, 128, 128, 1};
  int threads = 1;
  int rounds = 15;
  std::string target, json;
  bool quick = false;
};

// One token in place: the final states overwrite the initial ones.
class DecodeStep {
 public:
  DecodeStep(const BenchRow& row, const Shape& shape, int threads)
      : row_(row), start_(random_inputs(row.spec, shape, kSeed)) {
    options_.mode = Mode::kRecurrent;
    options_.threads = threads;
    for (const auto& arg : input_args()) {
      const auto found = start_.find(std::string(arg.name));
      if (found != start_.end()) inputs_.*arg.member = take(found->second.shape);
    }
    outputs_.o = take(output_shape(row.spec, "o", shape));
    outputs_.S_final = inputs_.S0;
    outputs_.A_final = inputs_.A0;
    outputs_.P_final = inputs_.P0;
    outputs_.G_final = inputs_.G0;
    restart();
  }

  // The states after thousands of steps with the same token say nothing about a model; every sample starts anew.
  void restart() {
    for (const auto& arg : input_args()) {
      if (!(inputs_.*arg.member)) continue;
      const std::vector<double>& values = start_.at(std::string(arg.name)).data;
      std::copy(values.begin(), values.end(), (inputs_.*arg.member).data);
    }
  }

  void run() { forward(row_.spec, inputs_, outputs_, options_); }

 private:
  Tensor take(const std::vector<int64_t>& dims) {
    Tensor tensor = dense_tensor(nullptr, dims);
    tensor.data = arena_.take_zeros(tensor.size());
    return tensor;
  }

  const BenchRow row_;
  const Arrays start_;
  Options options_;
  Arena arena_;
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

struct RowResult {
  std::string label;
  double error = 0;
  std::vector<double> seconds;  // per step, one per round
};

// All rows on the SIMD target in use.
std::vector<RowResult> measure_rows(const Settings& settings, Progress& progress) {
  std::vector<RowResult> results;
  std::vector<std::unique_ptr<DecodeStep>> steps;
  std::vector<int> calls;
  for (const std::string& label : settings.labels) {
    progress.show(fmt::format("{}: {}", simd_target(), label));
    const BenchRow row = bench_row(label, true);
    results.push_back({label, step_error(row, settings.shape, settings.threads), {}});
    steps.push_back(std::make_unique<DecodeStep>(row, settings.shape, settings.threads));
    steps.back()->run();
    const double once = seconds_of([&] { steps.back()->run(); });
    calls.push_back(std::clamp(static_cast<int>(3e-3 / once), 1, 1000));
  }
  for (int round = 0; round < settings.rounds; ++round) {
    progress.show(fmt::format("{}: round {} of {}", simd_target(), round + 1, settings.rounds));
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (!(results[i].error <= kReferenceTolerance)) continue;
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

int run(Settings settings) {
  check_writable(settings.json);
  const bool printing = settings.json != "-";
  if (settings.labels.empty()) settings.labels = default_bench_labels();
  if (settings.quick) settings.rounds = 5;
  std::vector<std::string> targets = simd_targets();
  if (!settings.target.empty()) {
    set_simd_target(settings.target);
    targets = {simd_target()};
  }

  Progress progress;
  std::vector<std::vector<std::string>> table(1 + settings.labels.size() + 3);
  table[0] = {bold("µs per token")};
  nlohmann::json results = nlohmann::json::array(), kernels = nlohmann::json::array();
  bool correct = true;
  for (const std::string& target : targets) {
    set_simd_target(target);
    table[0].insert(table[0].end(), {bold(target), "p10–p90"});
    const std::vector<RowResult> rows = measure_rows(settings, progress);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const RowResult& row = rows[i];
      if (table[i + 1].empty()) table[i + 1] = {row.label};
      const bool right = row.error <= kReferenceTolerance;
      correct = correct && right;
      nlohmann::json result = {{"row", row.label}, {"simd_target", target}, {"correct", right}};
      if (right) {
        const double low = quantile(row.seconds, 0.1) * 1e6, high = quantile(row.seconds, 0.9) * 1e6;
        table[i + 1].insert(table[i + 1].end(), {digits_text(median(row.seconds) * 1e6),
                                                 fmt::format("{}–{}", digits_text(low), digits_text(high))});
        result.update({{"median_us", median(row.seconds) * 1e6}, {"p10_us", low}, {"p90_us", high}});
      } else {
        table[i + 1].insert(table[i + 1].end(), {red(fmt::format("WRONG ({})", number_text(row.error))), ""});
      }
      results.push_back(std::move(result));
    }

    const StepKernelResult kernel = measure_step_kernel(settings.shape, settings.rounds);
    correct = correct && kernel.error <= kReferenceTolerance;
    const auto add = [&](std::size_t from_end, const char* label, const std::vector<double>& values, double unit,
                         const char* suffix) {
      auto& cells = table[table.size() - from_end];
      if (cells.empty()) cells = {label};
      const auto text = [&](double q) { return digits_text(quantile(values, q) * unit) + suffix; };
      cells.insert(cells.end(), {text(0.5), fmt::format("{}–{}", text(0.1), text(0.9))});
    };
    add(3, "the step kernel alone", kernel.step, 1e6, "");
    add(2, "a plain loop, four passes over S", kernel.plain, 1e6, "");
    add(1, "the loop against the kernel", kernel.ratio, 1, "x");
    kernels.push_back({{"simd_target", target},
                       {"step_us", median(kernel.step) * 1e6},
                       {"plain_us", median(kernel.plain) * 1e6},
                       {"ratio", median(kernel.ratio)}});
  }
  set_simd_target(settings.target);
  progress.clear();

  const Shape& shape = settings.shape;
  if (printing) {
    fmt::print("{}, {} thread{}; one token in place, B={} H={} U={} K={} V={}, states of {} KiB\n\n", cpu_model(),
               settings.threads, settings.threads == 1 ? "" : "s", shape.B, shape.H, shape.U, shape.K, shape.V,
               shape.B * shape.U * shape.K * shape.V * static_cast<int64_t>(sizeof(float)) / 1024);
    print_table(table, {1, 3, 5, 7, 9, 11});
  }
  write_json(settings.json,
             {{"benchmark", "step"},
              {"machine", machine_json(settings.threads)},
              {"shape", {{"B", shape.B}, {"H", shape.H}, {"U", shape.U}, {"K", shape.K}, {"V", shape.V}}},
              {"results", results},
              {"kernels", kernels}});
  return correct ? 0 : 1;
}

}  // namespace

std::function<int()> setup_bench_step(const Arguments& args) {
  const auto s = std::make_shared<Settings>();
  args.option("--rows", s->labels, "Rows to time, separated by commas").comma_separated();
  args.option("--threads", s->threads, "Threads").between(1, 1024).show_default();
  args.option("--target", s->target, "Only this SIMD target (default: all that this CPU has)");
  args.option("--json", s->json, "Write the results to this file (-: to standard output, instead of the table)");
  args.flag("--quick", s->quick, "Fewer repeats");
  return [s] { return run(*s); };
}

}  // namespace deltanet::cli
