// `deltanet bench step`: the latency of one token, as in text generation.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "bench/rows.h"
#include "bench/step.h"
#include "cli/bench/bench.h"
#include "cli/json_file.h"
#include "cli/terminal.h"
#include "deltanet/runtime.h"

namespace deltanet::cli {
namespace {

struct Settings {
  bench::StepOptions steps;
  std::string target, json;
  bool quick = false;
};

int run(Settings settings) {
  check_writable(settings.json);
  const bool printing = settings.json != "-";
  if (settings.steps.labels.empty()) settings.steps.labels = bench::default_bench_labels();
  if (settings.quick) settings.steps.rounds = 5;
  std::vector<std::string> targets = simd_targets();
  if (!settings.target.empty()) {
    set_simd_target(settings.target);
    targets = {simd_target()};
  }

  Progress progress;
  std::vector<std::vector<std::string>> table(1 + settings.steps.labels.size() + 3);
  table[0] = {bold("µs per token")};
  nlohmann::json results = nlohmann::json::array(), kernels = nlohmann::json::array();
  bool correct = true;
  for (const std::string& target : targets) {
    set_simd_target(target);
    table[0].insert(table[0].end(), {bold(target), "p10–p90"});
    const auto [rows, kernel] =
        bench::measure_steps(settings.steps, [&](const std::string& doing) { progress.show(doing); });
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const bench::StepTimes& row = rows[i];
      if (table[i + 1].empty()) table[i + 1] = {row.label};
      correct = correct && row.correct();
      nlohmann::json result = {{"row", row.label}, {"simd_target", target}, {"correct", row.correct()}};
      if (row.correct()) {
        const double low = bench::quantile(row.seconds, 0.1) * 1e6, high = bench::quantile(row.seconds, 0.9) * 1e6;
        table[i + 1].insert(table[i + 1].end(), {digits_text(bench::median(row.seconds) * 1e6),
                                                 fmt::format("{}–{}", digits_text(low), digits_text(high))});
        result.update({{"median_us", bench::median(row.seconds) * 1e6}, {"p10_us", low}, {"p90_us", high}});
      } else {
        table[i + 1].insert(table[i + 1].end(), {red(fmt::format("WRONG ({})", number_text(row.error))), ""});
      }
      results.push_back(std::move(result));
    }

    correct = correct && kernel.correct();
    const auto add = [&](std::size_t from_end, const char* label, const std::vector<double>& values, double unit,
                         const char* suffix) {
      auto& cells = table[table.size() - from_end];
      if (cells.empty()) cells = {label};
      const auto text = [&](double q) { return digits_text(bench::quantile(values, q) * unit) + suffix; };
      cells.insert(cells.end(), {text(0.5), fmt::format("{}–{}", text(0.1), text(0.9))});
    };
    add(3, "the step kernel alone", kernel.step, 1e6, "");
    add(2, "a plain loop, four passes over S", kernel.plain, 1e6, "");
    add(1, "the loop against the kernel", kernel.ratio, 1, "x");
    kernels.push_back({{"simd_target", target},
                       {"step_us", bench::median(kernel.step) * 1e6},
                       {"plain_us", bench::median(kernel.plain) * 1e6},
                       {"ratio", bench::median(kernel.ratio)}});
  }
  set_simd_target(settings.target);
  progress.clear();

  const Shape& shape = settings.steps.shape;
  if (printing) {
    fmt::print("{}, {} thread{}; one token in place, B={} H={} U={} K={} V={}, states of {} KiB\n\n",
               bench::cpu_model(), settings.steps.threads, settings.steps.threads == 1 ? "" : "s", shape.B, shape.H,
               shape.U, shape.K, shape.V,
               shape.B * shape.U * shape.K * shape.V * static_cast<int64_t>(sizeof(float)) / 1024);
    print_table(table, {1, 3, 5, 7, 9, 11});
  }
  write_json(settings.json,
             {{"benchmark", "step"},
              {"machine", bench::machine_json(settings.steps.threads)},
              {"shape", {{"B", shape.B}, {"H", shape.H}, {"U", shape.U}, {"K", shape.K}, {"V", shape.V}}},
              {"results", results},
              {"kernels", kernels}});
  return correct ? 0 : 1;
}

}  // namespace

std::function<int()> setup_bench_step(const Arguments& args) {
  const auto s = std::make_shared<Settings>();
  args.option("--rows", s->steps.labels, "Rows to time, separated by commas").comma_separated();
  args.option("--threads", s->steps.threads, "Threads").between(1, 1024).show_default();
  args.option("--target", s->target, "Only this SIMD target (default: all that this CPU has)");
  args.option("--json", s->json, "Write the results to this file (-: to standard output, instead of the table)");
  args.flag("--quick", s->quick, "Fewer repeats");
  return [s] { return run(*s); };
}

}  // namespace deltanet::cli
