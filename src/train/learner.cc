#include "train/learner.h"

#include <cmath>

namespace deltanet {
namespace {

std::shared_ptr<Weights> new_weights(const Config& config, uint64_t seed, int threads) {
  auto weights =
      std::make_shared<Weights>(std::make_shared<Layout>(config), nn::WeightType::kFloat32, /*keep_masters=*/true);
  weights->initialize(seed, threads);
  return weights;
}

}  // namespace

Learner::Learner(const Config& config, uint64_t seed, const AdamWOptions& options, int threads)
    : threads_(threads),
      weights_(new_weights(config, seed, threads)),
      model_(weights_, threads),
      gradients_(weights_->layout()),
      adamw_(weights_->layout(), options) {}

double Learner::accumulate(std::span<const int32_t> ids, std::span<const int32_t> targets,
                           std::span<const int64_t> offsets, float scale) {
  return model_.loss_and_gradients(ids, targets, offsets, {.target = scale}, Keep::kAll, gradients_.added());
}

bool Learner::step(double lr, double clip) {
  const double norm = gradient_norm(gradients_, threads_);
  const bool finite = std::isfinite(norm);
  if (finite) adamw_.step(*weights_, gradients_, norm, clip, lr, threads_);
  set_zero(gradients_.matrices, threads_);
  set_zero(gradients_.vectors, threads_);
  return finite;
}

}  // namespace deltanet
