#include "cli/mqar_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "cli/terminal.h"

namespace deltanet::cli {
namespace {

std::string percent(double share) { return std::isnan(share) ? "-" : fmt::format("{:.1f}%", 100 * share); }

// Mean over everything that tested the task: one run for a mix, a run for each task otherwise.
double accuracy_of(const std::vector<MqarBest>& best, const std::string& row, int64_t d_model, const MqarTask& task) {
  for (const MqarBest& one : best) {
    if (one.row != row || one.d_model != d_model) continue;
    const double accuracy = one.mean(task);
    if (!std::isnan(accuracy)) return accuracy;
  }
  return std::nan("");
}

}  // namespace

std::string parts_text(const std::vector<MqarPart>& parts) {
  std::string text;
  for (const MqarPart& part : parts) {
    text += fmt::format("{}({},{})x{}", text.empty() ? "" : " ", part.task.length, part.task.pairs,
                        count_text(static_cast<double>(part.examples)));
  }
  return text;
}

std::string progress_text(const MqarRun& run, const MqarProgress& progress) {
  const double done = static_cast<double>(progress.step) / static_cast<double>(progress.steps);
  return fmt::format("{:9} d {} lr {:<8.3g} seed {}  step {}/{}  loss {:.3f}  accuracy {:>6}  {} tokens/s  {}", run.row,
                     run.d_model, run.lr, run.seed, progress.step, progress.steps, progress.loss,
                     percent(progress.accuracy), count_text(progress.tokens_per_second),
                     left_text(progress.seconds, done));
}

void print_best(const std::vector<MqarBest>& best) {
  std::vector<std::vector<std::string>> table = {{"model", "d_model", "best lr", "seeds", "accuracy", "lowest",
                                                  "median", "highest", "steps", "tokens/s", "trained on"}};
  for (const MqarBest& one : best) {
    double steps = 0, tokens = 0, seconds = 0;
    for (const MqarRecord* record : one.seeds) {
      steps += static_cast<double>(record->result.steps) / static_cast<double>(one.seeds.size());
      tokens += static_cast<double>(record->result.tokens);
      seconds += record->result.train_seconds;
    }
    table.push_back({one.row, std::to_string(one.d_model), fmt::format("{:.3g}", one.lr),
                     std::to_string(one.seeds.size()), bold(percent(one.mean())), percent(one.lowest()),
                     percent(one.median()), percent(one.highest()), fmt::format("{:.0f}", steps),
                     count_text(tokens / seconds), parts_text(one.train)});
  }
  print_table(table, {1, 2, 3, 4, 5, 6, 7, 8, 9});
}

void print_tests(const std::vector<MqarBest>& best) {
  const std::vector<MqarPart>& tests = best.front().seeds.front()->run.tests;
  if (tests.size() < 2) return;  // the mean is the only one
  std::vector<std::vector<std::string>> table = {{"model", "d_model"}};
  std::vector<std::size_t> numbers = {1};
  for (const MqarPart& test : tests) {
    numbers.push_back(table.front().size());
    table.front().push_back(fmt::format("{},{}", test.task.length, test.task.pairs));
  }
  for (const MqarBest& one : best) {
    std::vector<std::string> line = {one.row, std::to_string(one.d_model)};
    for (const MqarPart& test : tests) line.push_back(percent(one.mean(test.task)));
    table.push_back(line);
  }
  fmt::print("\n{} (length,pairs)\n", bold("tests"));
  print_table(table, numbers);
}

void print_cuts(const std::vector<MqarBest>& best) {
  for (const MqarCut& cut : mqar_cuts()) {
    std::vector<std::vector<std::string>> table = {{"model", "d_model"}};
    for (const MqarTask& task : cut.tasks) table.front().push_back(fmt::format("{},{}", task.length, task.pairs));
    std::size_t tested = 0;
    std::set<std::pair<std::string, int64_t>> seen;
    for (const MqarBest& one : best) {
      if (!seen.insert({one.row, one.d_model}).second) continue;
      std::vector<std::string> line = {one.row, std::to_string(one.d_model)};
      std::size_t found = 0;
      for (const MqarTask& task : cut.tasks) {
        const double accuracy = accuracy_of(best, one.row, one.d_model, task);
        found += std::isnan(accuracy) ? 0 : 1;
        line.push_back(percent(accuracy));
      }
      tested = std::max(tested, found);
      table.push_back(line);
    }
    if (tested < 2) continue;
    fmt::print("\n{} (length,pairs)\n", bold(cut.name));
    std::vector<std::size_t> numbers;
    for (std::size_t i = 1; i < table.front().size(); ++i) numbers.push_back(i);
    print_table(table, numbers);
  }
}

}  // namespace deltanet::cli
