#include "cli/quickstart/recall.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "base/text.h"
#include "cli/live_lines.h"
#include "cli/terminal.h"
#include "deltanet/runtime.h"
#include "experiments/mqar_pairs.h"
#include "experiments/mqar_sweep.h"

namespace deltanet::cli {
namespace {

constexpr std::size_t kBase = 0, kPreconditioned = 1;  // the models of paired_mqar_sweep()
constexpr std::array kNames = {"DeltaNet", "PDN"};
constexpr std::array kColors = {Color::kBlue, Color::kVermilion};
constexpr const char* kDifference = "PDN − DeltaNet";

std::string points_text(double share) { return std::isnan(share) ? "" : fmt::format("{:.1f}", 100 * share); }

std::string half_width_text(const MeanInterval& interval) {
  return std::isfinite(interval.half_width) ? fmt::format("±{:.1f}", 100 * interval.half_width) : "";
}

// A mean for each point, drawn as bars of eighths; a blank for those that are still to come.
std::string bars(const std::vector<MeanInterval>& points) {
  constexpr std::array kBars = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string text;
  for (const MeanInterval& point : points) {
    text += std::isnan(point.mean) ? " " : kBars[static_cast<std::size_t>(std::clamp(point.mean * 8, 0.0, 7.0))];
  }
  return text;
}

// What is measured at some points: models, their differences, and where the points are.
struct Comparison {
  std::string title, unit;
  std::vector<std::string> points;
  std::array<std::vector<MeanInterval>, 2> models;
  std::vector<MeanInterval> differences;
};

// Bars for all points, numbers for every `every`-th: as wide as a terminal of 80 columns.
std::vector<std::string> lines_of(const Comparison& all, std::size_t every) {
  std::vector<std::vector<std::string>> table = {{bold(all.title), ""}};
  for (const std::size_t model : {kBase, kPreconditioned}) {
    table.push_back({colored(kColors[model], kNames[model]), colored(kColors[model], bars(all.models[model]))});
  }
  table.push_back({kDifference, ""});
  table.push_back({"  95 % interval", ""});
  std::vector<std::size_t> numbers;
  for (std::size_t i = every - 1; i < all.points.size(); i += every) {
    const MeanInterval& difference = all.differences[i];
    numbers.push_back(table.front().size());
    table[0].push_back(fmt::format("{:>5}", all.points[i]));  // as wide as what comes below it later
    for (const std::size_t model : {kBase, kPreconditioned}) {
      table[1 + model].push_back(points_text(all.models[model][i].mean));
    }
    table[3].push_back(std::isnan(difference.mean) ? "" : fmt::format("{:+.1f}", 100 * difference.mean));
    table[4].push_back(half_width_text(difference));
  }
  table.front().push_back(all.unit);
  return table_lines(table, numbers, 2);
}

std::vector<std::string> curve_lines(const MqarPairs& pairs) {
  Comparison curves{"recall, %, after",
                    "steps",
                    {},
                    {pairs.curve(kBase), pairs.curve(kPreconditioned)},
                    pairs.curve(kPreconditioned, kBase)};
  for (const int64_t step : pairs.steps()) curves.points.push_back(std::to_string(step));
  return lines_of(curves, 2);
}

std::vector<std::string> test_lines(const MqarPairs& pairs) {
  Comparison tests{"at the end, with",
                   "pairs",
                   {},
                   {pairs.by_test(kBase), pairs.by_test(kPreconditioned)},
                   pairs.by_test(kPreconditioned, kBase)};
  for (const MqarTask& task : pairs.tests()) tests.points.push_back(std::to_string(task.pairs));
  return lines_of(tests, 1);
}

void train(const std::vector<MqarRun>& runs, MqarPairs& pairs, MqarResults& results) {
  const int threads = default_threads();
  const std::size_t rows = curve_lines(pairs).size();
  LiveLines lines(rows + 1);
  std::size_t finished = 0;
  MqarObserver observer;
  observer.progress = [&](int, const MqarRun& run, const MqarProgress& progress) {
    if (!progress.validated) return;
    pairs.add(run, progress);
    if (lines.live()) lines.set_first(curve_lines(pairs));
  };
  observer.finished = [&](int, const MqarRecord& record, double done, double seconds) {
    pairs.add(record.run, record.result.scores);
    lines.set(rows, fmt::format("  {} of {} runs, about {}", ++finished, runs.size(), left_text(seconds, done)));
  };
  run_mqar_sweep(runs, threads, results, observer);
}

// What the last difference says, and what it does not.
void print_caption(const MqarPairs& pairs) {
  const MeanInterval end = pairs.curve(kPreconditioned, kBase).back();
  const std::string difference =
      std::isfinite(end.half_width)
          ? fmt::format("{:+.1f} ± {:.1f} points (95 % interval)", 100 * end.mean, 100 * end.half_width)
          : fmt::format("{:+.1f} points, from one pair: no interval", 100 * end.mean);
  const char* const verdict = !(std::fabs(end.mean) > end.half_width) ? "so many runs cannot tell the two apart"
                              : end.mean > 0                          ? "the preconditioned model is better"
                                                                      : "the preconditioned model is worse";
  fmt::print(
      "\n  After {} steps, {} pairs of runs: {} − {} = {}:\n"
      "  {}. The preconditioner mostly makes learning faster; how much it gains depends on the\n"
      "  task, and on when one looks. docs/training.md has longer runs, `deltanet mqar` compares any rows.\n",
      pairs.steps().back(), pairs.seeds(), kNames[kPreconditioned], kNames[kBase], difference, bold(verdict));
}

}  // namespace

void show_recall(int64_t seeds, int64_t steps, const std::filesystem::path& path) {
  std::filesystem::remove(path);
  const std::vector<MqarRun> runs = mqar_runs(paired_mqar_sweep(seeds, steps));
  fmt::print("\n{}: {} runs of {} steps, the same seeds and examples for both models\n\n",
             bold("Recall, DeltaNet and PDN side by side"), runs.size(), steps);
  fmt::print(
      "  A model reads pairs of tokens, a key and a value each, and has to name the value when a key comes again.\n"
      "  The state of each of its {0} layers has {1} x {1} numbers: with more than {1} pairs they get in each other's\n"
      "  way.\n\n",
      runs.front().layers, runs.front().d_model / runs.front().heads);
  MqarPairs pairs(runs);
  MqarResults results(path);
  train(runs, pairs, results);
  for (const std::string& line : curve_lines(pairs)) fmt::print("{}\n", line);
  fmt::print("\n");
  for (const std::string& line : test_lines(pairs)) fmt::print("{}\n", line);
  print_caption(pairs);
}

}  // namespace deltanet::cli
