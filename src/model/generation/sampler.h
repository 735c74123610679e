#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/rng.h"
#include "deltanet/model.h"

namespace deltanet {

// Chooses tokens. The steps and their order are those of transformers: repetition penalty, temperature, top-k (tokens
// as probable as the k-th stay too), top-p, min-p. The same seed and the same calls give the same tokens; of equally
// probable tokens the lower id goes first. After the first call with a vocabulary, no call allocates memory.
class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);  // throws Error for options out of range

  // logits: [vocabulary]; -inf forbids a token. history: the tokens so far, for the repetition penalty.
  int32_t next(std::span<const float> logits, std::span<const int32_t> history);

 private:
  struct Candidate {
    float score;
    int32_t id;
    double probability;  // relative to the most likely token
  };
  static bool less_likely(const Candidate& a, const Candidate& b);

  void load(std::span<const float> logits);
  void penalize(std::span<const int32_t> history);
  void apply_temperature();
  void keep_top_k();
  void keep_top_p();
  void keep_min_p();
  void compute_probabilities();
  int32_t draw();

  SamplerOptions options_;
  Rng rng_;
  std::vector<Candidate> candidates_;
  std::vector<float> scores_;   // a copy for selecting the k-th
  std::vector<uint32_t> seen_;  // by token: the call that last saw it in the history
  uint32_t call_ = 0;
};

}  // namespace deltanet
