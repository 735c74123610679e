#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "deltanet/model.h"

// Training a Model step by step on batches of the caller. Runs with schedules, checkpoints and data belong to the
// program, `deltanet train`.

namespace deltanet {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0.01;  // decoupled, on all parameters
};

struct TrainStepOptions {
  double lr = 4e-4;
  AdamWOptions adamw = {};
  double clip = 1.0;       // gradients of a larger norm are scaled down to this one; infinity: never
  bool recompute = false;  // as in Model::loss_and_gradients
};

struct TrainStepResult {
  double loss = 0;  // mean over the targets, before the step
  double grad_norm = 0;
  bool skipped = false;  // the loss or the gradients were not finite: nothing was changed
};

// AdamW with its moments for one model, which must outlive it. A model with bf16 weights gets float32 values beside
// them, which the steps move; int8 weights cannot be trained.
class Optimizer {
 public:
  explicit Optimizer(Model& model);
  Optimizer(Optimizer&&) noexcept;
  Optimizer& operator=(Optimizer&&) noexcept;
  ~Optimizer();

  int64_t steps() const;  // that changed the model
  TrainStepResult step(std::span<const int32_t> ids, std::span<const int32_t> targets, std::span<const int64_t> offsets,
                       const TrainStepOptions& options = {});

  // The moments and the number of steps. With the checkpoint that Model::save writes, a run goes on where it was.
  void save(const std::string& path) const;
  void load(const std::string& path);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace deltanet
