#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/language_model.h"

namespace deltanet {

// Losses and gradients of whole batches. All threads work on each product of a large model. The sequences of a small
// one are shared out instead: each thread takes its own through forward and backward, with gradients of its own, and
// the threads meet once in a step rather than after every product, where the slower one would be waited for each time.
// The choice is made once, for the largest batch; a smaller one, such as the last of an evaluation, may leave threads
// idle.
class BatchModel {
 public:
  // `sequences` of `length` tokens are the largest batch to expect. With `whole`, sequences are never shared out:
  // gradients are complete layer by layer, as loss_and_gradients() reports them.
  BatchModel(const std::shared_ptr<const Weights>& weights, int threads, int64_t sequences, int64_t length, Keep keep,
             bool whole = false);

  // Whether the sequences of a batch of so many tokens are shared out over the threads.
  static bool shares_out(const Layout& layout, int threads, int64_t sequences, int64_t tokens);
  // Where: part i is the sequences [cuts[i], cuts[i+1]), whose bounds are nearest to even parts. Parts may be empty,
  // but not the first one.
  static std::vector<std::size_t> cuts(std::span<const int64_t> offsets, int64_t parts);

  // As those of LanguageModel.
  double loss(std::span<const int32_t> ids, std::span<const int32_t> targets, std::span<const int64_t> offsets);
  double loss_and_gradients(std::span<const int32_t> ids, std::span<const int32_t> targets,
                            std::span<const int64_t> offsets, LossScale scale, const Gradients& to,
                            const std::function<void(const GradientRange&)>& done = {});

  // As that of LanguageModel, of a batch that loss() takes.
  std::string first_not_finite(std::span<const int32_t> ids, std::span<const int32_t> targets,
                               std::span<const int64_t> offsets);

  int64_t parts() const { return static_cast<int64_t>(models_.size()); }  // of a batch; 1: it is not shared out
  int64_t planned_bytes() const;                                          // of activations
  int64_t gradient_bytes() const;                                         // of the threads' own gradients

 private:
  struct Part {
    std::span<const int32_t> ids, targets;
    std::vector<int64_t> offsets;
    double loss = 0;
  };
  void share_out(std::span<const int32_t> ids, std::span<const int32_t> targets, std::span<const int64_t> offsets);
  // Calls run(i) for every part that has tokens, on a thread of its own, to set its loss; returns the sum.
  template <class Run>
  double sum_over_parts(const Run& run);
  void add_own_gradients(const Gradients& to) const;

  int threads_;
  Keep keep_;
  std::vector<std::unique_ptr<LanguageModel>> models_;  // one, or one for each thread
  std::vector<Part> parts_;                             // of the batch, one for each model
  // [models - 1]: matrices, then vectors; those of the first model go to the result. Empty until they are needed.
  std::vector<std::vector<float>> own_;
};

}  // namespace deltanet
