#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "simd/kernels.h"

namespace deltanet {

// The decay over a whole chunk, from the logarithms of its tokens' decays: rounded once. A state meets one of these per
// chunk; a product of rounded decays would add up sixteen times as many errors, all of one sign if the decay is
// constant.
inline float chunk_decay(const float* log_alpha) {
  double sum = 0.0;
  for (int64_t i = 0; i < simd::kChunk; ++i) sum += log_alpha[i];
  return static_cast<float>(std::exp(sum));
}

// Products of the scalar decays of a chunk: gamma_i from the start of the chunk through token i, to_end_j from after
// token j to the end, between_ij from after token j through token i (0 for i < j). Only products are formed, never
// quotients or differences of logarithms, so every value is in [0, 1] and accurate to a few units in the last place
// however strong the decay.
inline void decay_products(const float* alpha, float* gamma, float* to_end, float* between) {
  using simd::kChunk;
  float product = 1.0f;
  for (int64_t i = 0; i < kChunk; ++i) gamma[i] = product *= alpha[i];
  product = 1.0f;
  for (int64_t j = kChunk - 1; j >= 0; --j) {
    to_end[j] = product;
    product *= alpha[j];
  }
  std::fill_n(between, kChunk, 0.0f);
  between[0] = 1.0f;
  for (int64_t i = 1; i < kChunk; ++i) {
    for (int64_t j = 0; j < kChunk; ++j) between[i * kChunk + j] = between[(i - 1) * kChunk + j] * alpha[i];
    between[i * kChunk + i] = 1.0f;
  }
}

// Collects gradients of products of decays: a product over tokens first..last (none where first > last) adds its
// (value * gradient) to the gradient of each of their logarithms. A sum holds only what belongs to it: adding at one
// end and taking away at the other would leave the rounding of gentle decays in the gradients of strong ones.
struct LogDecayGrad {
  double values[simd::kChunk][simd::kChunk] = {};  // by last and first

  void add(int64_t first, int64_t last, double value) {
    if (first <= last) values[last][first] += value;
  }
  void finish(float* log_alpha) const {
    double begun[simd::kChunk] = {};  // by last, those whose first token is i or earlier
    for (int64_t i = 0; i < simd::kChunk; ++i) {
      double sum = 0.0;
      for (int64_t last = i; last < simd::kChunk; ++last) sum += begun[last] += values[last][i];
      log_alpha[i] = static_cast<float>(sum);
    }
  }
};

}  // namespace deltanet
