#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "deltanet/tokenizer.h"
#include "eval/task.h"
#include "train/run/train_run.h"

namespace deltanet::cli {

// The tasks of `deltanet eval` that a run is evaluated on while it trains: eval_tasks of its config.
class TrainTasks {
 public:
  // Reads all examples, so that what is missing or wrong is said before the first step.
  explicit TrainTasks(const TrainConfig& config);

  // The paper's metric of each task; accuracies from 0 to 1. `show` gets what is going on.
  TaskScores evaluate(Trainer& trainer, const std::function<void(const std::string&)>& show) const;

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
  eval::TaskModel reader_;
  std::vector<std::pair<const eval::Task*, eval::LoadedTask>> tasks_;
};

}  // namespace deltanet::cli
