#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/arena.h"
#include "nn/factor.h"
#include "nn/matmul/weight.h"

namespace deltanet::nn {

// What should follow a token.
struct Target {
  int64_t token;  // its place
  int32_t id;
};

// The product with the head and the softmax cross-entropy over the vocabulary, x [tokens, D], head [vocab, D]:
//   loss = sum over tokens of log sum exp(x head^T) - (x head^T)[target]
// Blocks of tokens go through the vocabulary one after the other, so that only a block of logits exists at a time, and
// tokens without a target are left out of the products, unless they are pulled. The memory is kept between calls.
class VocabularyLoss {
 public:
  // Sum of the losses. With dx (set; zero for tokens left out) and dhead (set, or added to) also `scale` times
  // its gradients, and `pull` times the largest logit of each token added to this logit's gradient.
  double operator()(const Weight& head, int64_t tokens, ConstView x, const int32_t* targets, float scale, float pull,
                    View dx, float* dhead, bool add, int threads);

  // log p of each target, and whether it is the most probable token. A token may have several.
  void log_probs(const Weight& head, ConstView x, std::span<const Target> targets, double* log_prob, bool* greedy,
                 int threads);

  static int64_t block_tokens(int64_t vocab);
  // Makes room for this head, which otherwise the first call does.
  void plan(const Weight& head);
  int64_t planned_bytes() const { return arena_.capacity() * static_cast<int64_t>(sizeof(float)); }

 private:
  void select(int64_t tokens, const int32_t* targets, bool all = false);
  struct Block {
    int64_t tokens;
    Factor x;  // [tokens, D]
  };
  Block gather(const Weight& head, int64_t first, ConstView x, int threads);

  Arena arena_;
  WeightType planned_type_ = WeightType::kFloat32;
  int64_t planned_vocab_ = 0, planned_D_ = 0, block_ = 0;
  View logits_, dx_;               // [block, vocab], [block, D]
  float* x_ = nullptr;             // a factor [block, D]
  std::vector<int64_t> selected_;  // tokens that go through the head
  std::vector<int32_t> labels_;    // [block]
  std::vector<double> losses_;     // [block]
};

}  // namespace deltanet::nn
