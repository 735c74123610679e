#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "train/batch_model.h"
#include "train/batch_source.h"
#include "train/communicator.h"
#include "train/memory_plan.h"
#include "train/model_adamw.h"
#include "train/train_config.h"

namespace deltanet {

// Where a run stands. Together with the weights and the moments this decides everything that follows: the samples and
// the learning rate of a step depend on its number only.
struct TrainState {
  int64_t step = 0;             // steps done, skipped ones included
  int64_t optimizer_steps = 0;  // steps that changed the weights
  int64_t bad_steps = 0, bad_in_a_row = 0;
  double last_good_loss = std::numeric_limits<double>::quiet_NaN();
  double best_loss = std::numeric_limits<double>::infinity();  // of evaluations
  int64_t best_step = 0;
};

struct StepReport {
  int64_t step = 0;  // the number of steps done with this one
  double loss = 0;   // mean over the targets of the step
  double lr = 0, grad_norm = 0;
  bool skipped = false;  // the loss or the gradients were not finite
};

// Trains one model: the weights, the moments and the step. With several processes each works on its part of every batch
// and owns the moments of its part of the parameters; all of them hold the same weights.
class Trainer {
 public:
  // Throws Error, before anything big is touched, if the memory does not suffice.
  Trainer(const TrainConfig& config, Communicator& processes);

  const TrainConfig& config() const { return config_; }
  const MemoryPlan& memory() const { return memory_; }
  Weights& weights() { return *weights_; }
  const Layout& layout() const { return *layout_; }
  Communicator& processes() { return processes_; }
  const TrainState& state() const { return state_; }
  int threads() const { return threads_; }

  void initialize();  // random weights of the config's seed, or those of init_from

  // One step on the next batch_size samples. A step whose loss or gradients are not finite changes no weight and is
  // counted; an Error with a diagnosis ends the run after max_bad_steps in a row.
  StepReport step(const BatchSource& data);

  // Mean loss over the first samples of held-out data; the best one is remembered.
  double evaluate(const BatchSource& held_out);

  // For checkpoints.
  std::array<ModelAdamW::Moment, 4> moments() { return adamw_->moments(); }
  void restore(const TrainState& state);  // after weights and moments were filled in

 private:
  int64_t of_other_processes();  // bytes that those on this machine plan
  void complete_plan();
  double accumulate_gradients(const BatchSource& data);  // the mean loss of the step
  void update(const StepReport& report);
  [[noreturn]] void stop_with_diagnosis(const StepReport& last);

  TrainConfig config_;
  Communicator& processes_;
  int threads_;
  Schedule schedule_;
  std::shared_ptr<const Layout> layout_;
  std::shared_ptr<Weights> weights_;
  std::unique_ptr<BatchModel> model_;
  MemoryPlan memory_;
  GradientArrays gradients_;
  std::unique_ptr<ModelAdamW> adamw_;
  std::vector<Batch> batches_;  // of a step, one for each pass
  TrainState state_;
};

}  // namespace deltanet
