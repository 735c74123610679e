#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace deltanet {

using TaskScores = std::vector<std::pair<std::string, double>>;

// What is reported about a step.
struct Metrics {
  int64_t step = 0;
  double loss = 0, lr = 0, grad_norm = 0;
  int64_t tokens = 0;  // seen so far
  double tokens_per_second = 0;
  int64_t bad_steps = 0;                // so far
  std::optional<double> val_loss = {};  // where this step was evaluated
  TaskScores tasks = {};                // the same of tasks (TrainObserver::evaluate)
};

// One line of JSON. Numbers that are not finite, which JSON lacks, are null.
std::string metrics_line(const Metrics& metrics);

// metrics.jsonl of a run: lines are appended whole. A run that goes on from a step first drops what an interrupted one
// wrote after it, and a last line that was cut off.
class MetricsFile {
 public:
  MetricsFile(std::filesystem::path path, int64_t from_step);
  void append(const Metrics& metrics);
  void sync() const;  // puts what was appended on disk

 private:
  std::filesystem::path path_;
};

}  // namespace deltanet
