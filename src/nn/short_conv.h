#pragma once

#include <cstdint>
#include <span>

#include "nn/views.h"

namespace deltanet::nn {

// A causal depthwise convolution over packed sequences, x, y [T, C]:
//   pre_t = bias + sum_j weight_j * x_{t-(W-1)+j},   y_t = silu(pre_t) or pre_t
// Before the start of a sequence, x is its state: the last W-1 inputs, oldest first.
struct ShortConv {
  int64_t channels = 0, width = 0;  // C; W from 1 to 8
  const float* weight = nullptr;    // [C, W]
  const float* bias = nullptr;      // [C] or null
  bool silu = false;
};

// offsets [N+1]: sequence n is tokens [offsets[n], offsets[n+1]); the first is 0, the last is T.
// initial [N, W-1, C]: null is zeros. final [N, W-1, C]: null if not wanted, may be initial. y without data is not
// wanted either.
void short_conv_forward(const ShortConv& conv, std::span<const int64_t> offsets, ConstView x, const float* initial,
                        View y, float* final, int threads);

struct ShortConvGrads {
  View dx;                    // [T, C], set
  float* dweight = nullptr;   // [C, W], +=; null if not wanted
  float* dbias = nullptr;     // [C], +=; null if not wanted
  float* dinitial = nullptr;  // [N, W-1, C], set; null if not wanted
};

// dfinal [N, W-1, C]: the gradient of the final states, null for none; not the same as dinitial.
void short_conv_backward(const ShortConv& conv, std::span<const int64_t> offsets, ConstView x, const float* initial,
                         ConstView dy, const float* dfinal, const ShortConvGrads& grads, int threads);

}  // namespace deltanet::nn
