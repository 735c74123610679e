#include "train/learner.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace deltanet {
namespace {

std::shared_ptr<Weights> new_weights(const Config& config, uint64_t seed, int threads) {
  auto weights =
      std::make_shared<Weights>(std::make_shared<Layout>(config), nn::WeightType::kFloat32, /*keep_masters=*/true);
  weights->initialise(seed, threads);
  return weights;
}

}  // namespace

Learner::Learner(const Config& config, uint64_t seed, const AdamWOptions& options, int threads)
    : threads_(threads),
      weights_(new_weights(config, seed, threads)),
      model_(weights_, threads),
      dmatrices_(weights_->layout().matrices_size()),
      dvectors_(weights_->layout().vectors_size()),
      adam_matrices_(weights_->layout().matrices_size(), options),
      adam_vectors_(weights_->layout().vectors_size(), options) {}

double Learner::accumulate(std::span<const int32_t> ids, std::span<const int32_t> targets,
                           std::span<const int64_t> offsets, float scale) {
  return model_.loss_and_gradients(ids, targets, offsets, {.target = scale}, Keep::kAll,
                                   {.matrices = dmatrices_.data(), .vectors = dvectors_.data(), .add = true});
}

bool Learner::step(double lr, double clip) {
  const double norm = std::sqrt(squared_norm(dmatrices_.data(), weights_->layout().matrices_size(), threads_) +
                                squared_norm(dvectors_.data(), weights_->layout().vectors_size(), threads_));
  const bool finite = std::isfinite(norm);
  if (finite) {
    const auto scale = static_cast<float>(norm > clip ? clip / norm : 1.0);
    adam_matrices_.step(weights_->matrices(), dmatrices_.data(), scale, lr, threads_);
    adam_vectors_.step(weights_->vectors(), dvectors_.data(), scale, lr, threads_);
  }
  set_zero(dmatrices_, threads_);
  set_zero(dvectors_, threads_);
  return finite;
}

double cosine_lr(double peak, int64_t step, int64_t steps, int64_t warmup) {
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
  const double share = static_cast<double>(step - warmup) / static_cast<double>(std::max<int64_t>(1, steps - warmup));
  return peak * 0.5 * (1.0 + std::cos(std::numbers::pi * share));
}

}  // namespace deltanet
