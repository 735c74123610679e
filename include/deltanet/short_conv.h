#pragma once

#include <cstdint>
#include <span>

#include "deltanet/tensor.h"

// The causal depthwise convolution of the models, on its own. All tensors are float32 and dense.
//
//   y_t = act(bias + sum_j weight_j x_{t-(W-1)+j}),   act = silu or nothing
//
// Shapes: B batch, T tokens, C channels, W width from 1 to 8, N sequences (B, or the number of packed sequences).

namespace deltanet {

struct ShortConvInputs {
  ConstTensor x;                             // [B,T,C]
  ConstTensor weight;                        // [C,W]
  ConstTensor bias;                          // [C]; absent: zero
  ConstTensor initial;                       // [N,W-1,C], the inputs before the start, oldest first; absent: zero
  std::span<const int64_t> cu_seqlens = {};  // [N+1] packs N sequences into B = 1; empty: N = B
  bool silu = false;
};

struct ShortConvOutputs {  // absent: not wanted
  Tensor y;                // [B,T,C]
  Tensor final;            // [N,W-1,C], the last inputs
};

struct ShortConvOutputGradients {
  ConstTensor y, final;
};

struct ShortConvInputGradients {
  Tensor x, weight, bias, initial;
};

// Throws Error naming the argument when sizes do not fit. threads: 0 is the default of the machine.
void short_conv_forward(const ShortConvInputs& inputs, const ShortConvOutputs& outputs, int threads = 0);

// Gradients of sum(y*dy) + sum(final*dfinal). An absent upstream gradient is zero, an absent gradient is not written.
// Gradients are overwritten.
void short_conv_backward(const ShortConvInputs& inputs, const ShortConvOutputGradients& upstream,
                         const ShortConvInputGradients& gradients, int threads = 0);

}  // namespace deltanet
