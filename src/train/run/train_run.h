#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "train/run/metrics.h"
#include "train/run/training_data.h"
#include "train/trainer.h"

namespace deltanet {

// Listens to a run: the program's screen, tests. Called in rank 0 only.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void preparing(const char* /*what*/) {}       // before something that takes a while
  virtual void noticed(const std::string& /*what*/) {}  // something that people should know
  // Asked for every steps_between_tasks() steps where the config names tasks, and at the end: what the model can do
  // by now, by task. It goes with the metrics of the step. Nobody trains meanwhile.
  virtual TaskScores evaluate(Trainer& /*trainer*/) { return {}; }
  virtual void started(const Trainer& /*trainer*/, const TrainingData& /*data*/) {}
  virtual void stepped(const Metrics& /*metrics*/) {}  // every step
  virtual void logged(const Metrics& /*metrics*/) {}   // those that are kept in metrics.jsonl
  virtual void saved(const std::filesystem::path& /*checkpoint*/) {}
};

struct TrainResult {
  int64_t step = 0;
  bool interrupted = false;
  double best_loss = 0;  // of evaluations; infinite: there was none
};

// Throws Error if the folder of the config holds a run and `resume` is not given. run_training() asks as well; asking
// before the data are read saves the time.
void check_run_folder(const TrainConfig& config, bool resume);

// A whole run in the folder config.out: config.toml, checkpoints, metrics.jsonl and TensorBoard's events. `resume`
// continues from the last checkpoint of the folder, or begins where there is none yet; without it a folder that holds a
// checkpoint is refused. When `stop` becomes true, the step at work is finished and saved.
TrainResult run_training(const TrainConfig& config, const TrainingData& data, bool resume, TrainObserver& observer,
                         const std::atomic<bool>& stop, Communicator& processes);

}  // namespace deltanet
