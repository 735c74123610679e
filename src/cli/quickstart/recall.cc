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

// A mean for each point, drawn as bars of eighths.
std::string bars(const std::vector<MeanInterval>& points) {
  constexpr std::array kBars = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string text;
  for (const MeanInterval& point : points) {
    if (std::isnan(point.mean)) break;
    text += kBars[static_cast<std::size_t>(std::clamp(point.mean * 8, 0.0, 7.0))];
  }
  return text;
}

using Table = std::vector<std::vector<std::string>>;

// Models, their differences and the intervals of these, by `points` named in the heading.
std::vector<std::string> lines_of(const std::string& title, const std::vector<std::string>& heading,
                                  const std::array<std::vector<MeanInterval>, 2>& models,
                                  const std::vector<MeanInterval>& differences) {
  Table table = {{bold(title), ""}};
  std::vector<std::size_t> numbers;
  for (const std::string& cell : heading) {
    numbers.push_back(table.front().size());
    table.front().push_back(cell);
  }
  for (const std::size_t model : {kBase, kPreconditioned}) {
    std::vector<std::string> line = {colored(kColors[model], kNames[model]),
                                     colored(kColors[model], bars(models[model]))};
    for (const MeanInterval& point : models[model]) line.push_back(points_text(point.mean));
    table.push_back(line);
  }
  std::vector<std::string> means = {kDifference, ""}, widths = {"  95 % interval", ""};
  for (const MeanInterval& point : differences) {
    means.push_back(std::isnan(point.mean) ? "" : fmt::format("{:+.1f}", 100 * point.mean));
    widths.push_back(half_width_text(point));
  }
  table.push_back(means);
  table.push_back(widths);
  return table_lines(table, numbers, 2);
}

std::vector<std::string> curve_lines(const MqarPairs& pairs) {
  std::vector<std::string> heading;
  for (const int64_t step : pairs.steps()) heading.push_back(std::to_string(step));
  return lines_of("accuracy, %, after steps", heading, {pairs.curve(kBase), pairs.curve(kPreconditioned)},
                  pairs.curve(kPreconditioned, kBase));
}

std::vector<std::string> test_lines(const MqarPairs& pairs) {
  std::vector<std::string> heading;
  for (const MqarTask& task : pairs.tests()) heading.push_back(std::to_string(task.pairs));
  return lines_of("at the end, by pairs to recall", heading, {pairs.by_test(kBase), pairs.by_test(kPreconditioned)},
                  pairs.by_test(kPreconditioned, kBase));
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
    if (!lines.live()) return;
    const std::vector<std::string> table = curve_lines(pairs);
    for (std::size_t i = 0; i < rows; ++i) lines.set(i, table[i]);
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
      "\n  After {} steps, {} pairs of runs: {} − {} = {}: {}.\n"
      "  The preconditioner makes learning faster; how much it gains depends on the task, and on when one looks. "
      "Longer\n"
      "  training and larger models are in docs/training.md; `deltanet mqar` compares any rows.\n",
      pairs.steps().back(), pairs.seeds(), kNames[kPreconditioned], kNames[kBase], difference, bold(verdict));
}

}  // namespace

void show_recall(int64_t seeds, int64_t steps, const std::filesystem::path& path) {
  std::filesystem::remove(path);
  const std::vector<MqarRun> runs = mqar_runs(paired_mqar_sweep(seeds, steps));
  fmt::print(
      "\n{}: {} runs of {} steps, the same seeds and examples for both models\n\n"
      "  A model reads pairs of tokens, a key and a value each, and has to name the value when a key comes again.\n"
      "  The state has room for {} x {} numbers in each of {} layers: with more pairs they get in each other's "
      "way.\n\n",
      bold("Recall, DeltaNet and PDN side by side"), runs.size(), steps, runs.front().d_model / runs.front().heads,
      runs.front().d_model / runs.front().heads, runs.front().layers);
  MqarPairs pairs(runs);
  MqarResults results(path);
  train(runs, pairs, results);
  for (const std::string& line : curve_lines(pairs)) fmt::print("{}\n", line);
  fmt::print("\n");
  for (const std::string& line : test_lines(pairs)) fmt::print("{}\n", line);
  print_caption(pairs);
}

}  // namespace deltanet::cli
