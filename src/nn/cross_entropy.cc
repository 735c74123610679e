#include "nn/cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "simd/kernels.h"

namespace deltanet::nn {
namespace {

// log softmax = (x - max) - log sum exp(x - max): the first difference is exact enough in double for any logits.
double log_prob_of(float logit, float largest, double sum) {
  return static_cast<double>(logit) - static_cast<double>(largest) - std::log(sum);
}

}  // namespace

double cross_entropy(int64_t tokens, int64_t vocab, View logits, const int32_t* labels, float scale, double* loss,
                     int threads, bool round, float pull) {
  const auto& kernels = simd::kernels().layers;
  const auto& to_bf16 = simd::kernels().convert.scaled_to_bf16;
  for_row_blocks(tokens, vocab, threads, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* row = logits.row(r);
      const int32_t label = labels[r];
      const auto put = [&](int64_t at, float gradient) {
        if (round) {
          to_bf16(1, 1.0f, &gradient, reinterpret_cast<uint16_t*>(row) + at);
        } else {
          row[at] = gradient;
        }
      };
      if (label == kIgnoredLabel && pull == 0.0f) {
        std::fill_n(row, vocab, 0.0f);
        loss[r] = 0.0;
        continue;
      }
      const float largest = kernels.max(vocab, row);
      const int64_t place = pull == 0.0f ? 0 : std::find(row, row + vocab, largest) - row;
      if (label == kIgnoredLabel) {
        std::fill_n(row, vocab, 0.0f);
        loss[r] = 0.0;
        if (place < vocab) put(place, pull * largest);
        continue;
      }
      const float logit = row[label];
      const double sum = kernels.exp_sum(vocab, largest, row, row);
      loss[r] = -log_prob_of(logit, largest, sum);
      const auto factor = static_cast<float>(static_cast<double>(scale) / sum);
      const float at_label = factor * row[label] - scale;
      if (round) {
        to_bf16(vocab, factor, row, row);
      } else {
        kernels.scale(vocab, factor, row);
      }
      put(label, at_label);
      if (pull != 0.0f && place < vocab) {  // the exponential of the largest is 1; of NaNs there is no largest
        put(place, (place == label ? at_label : factor) + pull * largest);
      }
    }
  });
  double total = 0.0;
  for (int64_t r = 0; r < tokens; ++r) total += loss[r];
  return total;
}

Factor rounded_in_place(View logits) {
  return {reinterpret_cast<uint16_t*>(logits.data), logits.ld * static_cast<int64_t>(sizeof(float) / sizeof(uint16_t))};
}

void label_log_probs(int64_t tokens, int64_t vocab, ConstView logits, const int32_t* labels, double* log_prob,
                     bool* greedy, int threads) {
  const auto& kernels = simd::kernels().layers;
  for_row_blocks(tokens, vocab, threads, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int32_t label = labels[r];
      log_prob[r] = 0.0;
      greedy[r] = false;
      if (label == kIgnoredLabel) continue;
      const float* row = logits.row(r);
      const float largest = kernels.max(vocab, row);
      log_prob[r] = log_prob_of(row[label], largest, kernels.exp_sum(vocab, largest, row, nullptr));
      greedy[r] = row[label] == largest && kernels.max(label, row) < largest;
    }
  });
}

}  // namespace deltanet::nn
