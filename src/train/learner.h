#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "model/language_model.h"
#include "train/model_adamw.h"

namespace deltanet {

// A model that fits one core, its gradients and its optimizer: what small experiments need. Float32 throughout.
class Learner {
 public:
  Learner(const Config& config, uint64_t seed, const AdamWOptions& options, int threads);

  LanguageModel& model() { return model_; }
  const Weights& weights() const { return *weights_; }

  // Adds `scale` times the gradients of the summed loss over the targets that are not -100, and returns that sum.
  double accumulate(std::span<const int32_t> ids, std::span<const int32_t> targets, std::span<const int64_t> offsets,
                    float scale);
  // Moves the parameters by the gradients since the last step, scaled down to the norm `clip` if theirs is larger
  // (infinite: never), and forgets them. False if the gradients are not finite: the parameters stay as they were.
  bool step(double lr, double clip);

 private:
  int threads_;
  std::shared_ptr<Weights> weights_;
  LanguageModel model_;
  GradientArrays gradients_;
  ModelAdamW adamw_;
};

}  // namespace deltanet
