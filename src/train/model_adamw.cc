#include "train/model_adamw.h"

#include <cmath>

namespace deltanet {

std::vector<int64_t> share_begins(int64_t count, int parts) {
  std::vector<int64_t> begins;
  for (int64_t i = 0; i <= parts; ++i) begins.push_back(count * i / parts);
  return begins;
}

double gradient_norm(const GradientArrays& gradients, int threads) {
  const auto squares = [&](const std::vector<float>& values) {
    return squared_norm(values.data(), static_cast<int64_t>(values.size()), threads);
  };
  return std::sqrt(squares(gradients.matrices) + squares(gradients.vectors));
}

ModelAdamW::ModelAdamW(const Layout& layout, const AdamWOptions& options, int process, int processes)
    : matrices_begins_(share_begins(layout.matrices_size(), processes)),
      vectors_begins_(share_begins(layout.vectors_size(), processes)),
      matrices_begin_(matrices_begins_[process]),
      vectors_begin_(vectors_begins_[process]),
      matrices_(matrices_begins_[process + 1] - matrices_begin_, options),
      vectors_(vectors_begins_[process + 1] - vectors_begin_, options) {}

void ModelAdamW::step(Weights& weights, const GradientArrays& gradients, double norm, double clip, double lr,
                      int threads) {
  const auto scale = static_cast<float>(norm > clip ? clip / norm : 1.0);
  matrices_.step(weights.matrices() + matrices_begin_, gradients.matrices.data() + matrices_begin_, scale, lr, threads);
  vectors_.step(weights.vectors() + vectors_begin_, gradients.vectors.data() + vectors_begin_, scale, lr, threads);
}

std::array<ModelAdamW::Moment, 4> ModelAdamW::moments() {
  return {{{"matrices.m", &matrices_.m(), &matrices_begins_},
           {"matrices.v", &matrices_.v(), &matrices_begins_},
           {"vectors.m", &vectors_.m(), &vectors_begins_},
           {"vectors.v", &vectors_.v(), &vectors_begins_}}};
}

void ModelAdamW::set_options(const AdamWOptions& options) {
  matrices_.set_options(options);
  vectors_.set_options(options);
}

void ModelAdamW::set_steps(int64_t steps) {
  matrices_.set_steps(steps);
  vectors_.set_steps(steps);
}

}  // namespace deltanet
