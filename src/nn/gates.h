#pragma once

#include <cstdint>

#include "nn/views.h"

namespace deltanet::nn {

// x, y [rows, n]: y = scale * sigmoid(x). y may be x.
void sigmoid_gate_forward(int64_t rows, int64_t n, float scale, ConstView x, View y, int threads);
// dx = dy * y * (1 - y/scale), set. dx may be dy.
void sigmoid_gate_backward(int64_t rows, int64_t n, float scale, ConstView y, ConstView dy, View dx, int threads);

// x, y [rows, n]: y = silu(x). y may be x.
void silu_forward(int64_t rows, int64_t n, ConstView x, View y, int threads);
// dx is set and may be dy or x.
void silu_backward(int64_t rows, int64_t n, ConstView x, ConstView dy, View dx, int threads);

// A log decay per head (n = heads) or per head and key (n = heads*K):
//   g_j = -exp(A_log[head of j]) * softplus(x_j + dt_bias_j)
struct DecayGate {
  int64_t heads = 0, n = 0;
  const float* A_log = nullptr;    // [heads]
  const float* dt_bias = nullptr;  // [n], or null for none
};

// x, g [rows, n]. g may be x.
void decay_gate_forward(const DecayGate& gate, int64_t rows, ConstView x, View g, int threads);
// dx is set and may be dg or x; dA_log [heads] += ..., ddt_bias [n] += ..., either null if not wanted.
void decay_gate_backward(const DecayGate& gate, int64_t rows, ConstView x, ConstView dg, View dx, float* dA_log,
                         float* ddt_bias, int threads);

}  // namespace deltanet::nn
