#pragma once

#include <cstdint>

#include "nn/factor.h"

namespace deltanet::nn {

using simd::GateActivation;

// The norm and gate at the output of a mixer, per head of V values, after flash-linear-attention: the gate multiplies
// what was normalized and weighted.
//   y = o * rstd * w * act(gate),   rstd = 1/sqrt(mean over V of o*o + eps)
struct GatedNorm {
  int64_t heads = 0, V = 0;
  float eps = 0.0f;
  GateActivation activation = GateActivation::kNone;  // kNone: no gate
  const float* w = nullptr;                           // [V], shared by the heads; null: no weight
};

// o, gate, y [rows, heads*V], the heads of a row side by side; rstd [rows*heads] or null. y, if wide, may be o or gate.
void gated_norm_forward(const GatedNorm& norm, int64_t rows, ConstView o, ConstView gate, const Factor& y, float* rstd,
                        int threads);

// d_o and dgate [rows, heads*V] are set, dw [V] += ... (null: not wanted). d_o may be dy, dgate may be gate.
void gated_norm_backward(const GatedNorm& norm, int64_t rows, ConstView o, ConstView gate, const float* rstd,
                         ConstView dy, View d_o, View dgate, float* dw, int threads);

}  // namespace deltanet::nn
