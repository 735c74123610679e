#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deltanet/error.h"
#include "deltanet/model.h"
#include "model/language_model.h"
#include "model/state.h"

// What is behind the classes of deltanet/model.h. For the files that implement them.

namespace deltanet {

struct Model::Impl {
  Impl(std::shared_ptr<const Layout> layout_of_weights, const ModelOptions& options)
      : layout(std::move(layout_of_weights)),
        weights(std::make_shared<Weights>(layout, options.weights, /*keep_masters=*/false)),
        language_model(weights, options.threads),
        threads(options.threads) {}
  Impl(std::shared_ptr<Weights> shared, int threads_of_passes)
      : layout(shared->shared_layout()),
        weights(std::move(shared)),
        language_model(weights, threads_of_passes),
        threads(threads_of_passes) {}

  const Parameter& find(std::string_view name) const {
    for (const Parameter& parameter : layout->parameters()) {
      if (parameter.name == name) return parameter;
    }
    throw Error("[model] parameter: given \"" + std::string(name) + "\"; expected one of the names in parameters()");
  }

  // Makes room for gradients and returns the number of targets. Throws Error if there is none, or no gradient.
  int64_t begin_gradients(std::span<const int32_t> targets);
  // Of the mean loss, to `gradients`.
  LossSum loss_and_gradients(std::span<const int32_t> ids, std::span<const int32_t> targets,
                             std::span<const int64_t> offsets, bool recompute);

  std::shared_ptr<const Layout> layout;
  std::shared_ptr<Weights> weights;
  LanguageModel language_model;
  int threads;
  GradientArrays gradients;      // empty until they are wanted
  std::filesystem::path source;  // where it was loaded from; empty: nowhere
};

// For the rooms above.
struct ModelAccess {
  // A model of weights that somebody else has, such as a trainer between its steps.
  static Model of(std::shared_ptr<Weights> weights, int threads) {
    return Model(std::make_unique<Model::Impl>(std::move(weights), threads));
  }
  static const Config& config(const Model& model) { return model.impl_->layout->config(); }
  static uint64_t fingerprint(const Model& model) { return model.impl_->weights->fingerprint(); }
};

struct Session::Impl {
  LanguageModel& model;
  State state;
};

}  // namespace deltanet
