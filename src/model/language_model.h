#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/arena.h"
#include "deltanet/error.h"
#include "model/layer.h"
#include "model/state.h"
#include "model/weights.h"
#include "nn/vocabulary_loss.h"

namespace deltanet {

enum class Keep {
  kNothing,    // inference: all layers share their buffers
  kAll,        // training: every layer keeps what its backward pass needs
  kRecompute,  // training on long contexts: layers keep their input and compute the rest again
};

// Which gradients are complete: [matrices_begin, matrices_end) of the matrices and the like of the vectors.
struct GradientRange {
  int64_t matrices_begin, matrices_end, vectors_begin, vectors_end;
};

// What a model was asked for is not finite; the text says which part of it was the first.
class NotFiniteError : public Error {
 public:
  using Error::Error;
};

// The stack of layers between embedding and head, with the memory it works in. One pass at a time; the weights are
// borrowed. Buffers are planned for the largest pass seen: passes of the same or a smaller shape allocate nothing.
class LanguageModel {
 public:
  LanguageModel(std::shared_ptr<const Weights> weights, int threads);

  const Weights& weights() const { return *weights_; }
  const Layout& layout() const { return weights_->layout(); }
  const Config& config() const { return layout().config(); }
  int threads() const { return threads_; }

  // Throws Error for an id outside of the vocabulary.
  void check_ids(std::span<const int32_t> ids) const;
  // Targets may be -100 besides.
  void check_targets(std::span<const int32_t> targets) const;
  // Throws Error if loss() would.
  void check_batch(std::span<const int32_t> ids, std::span<const int32_t> targets,
                   std::span<const int64_t> offsets) const {
    check_with_targets(ids, targets, offsets, nullptr);
  }
  // Logits after the last token of each sequence, [N, vocab], with `state` (null: none) carried on. Throws Error where
  // they are not finite, as log_probs() does; logits and losses that are returned as they are say so themselves.
  void next_logits(std::span<const int32_t> ids, std::span<const int64_t> offsets, State* state, float* logits);
  // Logits after every token, [T, vocab].
  void all_logits(std::span<const int32_t> ids, std::span<const int64_t> offsets, State* state, float* logits);

  // Sum of -log p(target) over the tokens whose target is not -100; targets[i] follows ids[i].
  double loss(std::span<const int32_t> ids, std::span<const int32_t> targets, std::span<const int64_t> offsets);
  // log p(target) after every token, and whether the target is the most probable token; 0 and false where it is -100.
  void log_probs(std::span<const int32_t> ids, std::span<const int32_t> targets, std::span<const int64_t> offsets,
                 State* state, double* log_prob, bool* greedy);
  // The same for any number of targets at any of the tokens; none: only the state goes on.
  void log_probs(std::span<const int32_t> ids, std::span<const nn::Target> targets, std::span<const int64_t> offsets,
                 State* state, double* log_prob, bool* greedy);

  // Returns the same sum as loss(); its gradients, scaled, go `to` these arrays. `done` (may be empty) is called as
  // soon as the gradients of a layer are complete, from the last layer to the first, then for the rest.
  double loss_and_gradients(std::span<const int32_t> ids, std::span<const int32_t> targets,
                            std::span<const int64_t> offsets, LossScale scale, Keep keep, const Gradients& to,
                            const std::function<void(const GradientRange&)>& done = {});

  // Which part of the model first gives what is not finite, in a pass over these tokens from this state (null: none),
  // which stays as it is: "layer 3, the MLP"; empty: none before the head. For errors; slow.
  std::string first_not_finite(std::span<const int32_t> ids, std::span<const int64_t> offsets, const State* state);

  // Makes room for passes of up to this many tokens, which otherwise the first of them does.
  void plan(int64_t tokens, Keep keep);
  int64_t planned_bytes() const {
    return arena_.capacity() * static_cast<int64_t>(sizeof(float)) + vocabulary_loss_.planned_bytes();
  }

 private:
  Pass check(std::span<const int32_t> ids, std::span<const int64_t> offsets, const State* state) const;
  Pass check_with_targets(std::span<const int32_t> ids, std::span<const int32_t> targets,
                          std::span<const int64_t> offsets, const State* state) const;
  // Throws NotFiniteError that says where; `state`: after the pass over these tokens whose results are not finite.
  [[noreturn]] void fail_not_finite(const char* what, std::span<const int32_t> ids, std::span<const int64_t> offsets,
                                    const State* state);
  // Leaves the normalized output of the last layer in scratch_.x.
  void run_layers(const Pass& pass, std::span<const int32_t> ids, State* state);

  std::shared_ptr<const Weights> weights_;
  int threads_;
  std::vector<Layer> layers_;
  nn::VocabularyLoss vocabulary_loss_;

  Arena arena_;
  int64_t planned_tokens_ = 0;
  Keep planned_keep_ = Keep::kNothing;
  std::vector<LayerActivations> activations_;                     // one for each layer
  std::map<const AttentionConfig*, LayerActivations> gradients_;  // by kind of layer; null: the recurrence
  LayerScratch scratch_, dscratch_;
  float* pending_ = nullptr;     // [T,D]
  float* h_final_ = nullptr;     // [T,D]
  float* final_rstd_ = nullptr;  // [T]
  float* dh_ = nullptr;          // [T,D]
};

}  // namespace deltanet
