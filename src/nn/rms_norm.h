#pragma once

#include <cstdint>

#include "nn/factor.h"

namespace deltanet::nn {

// x, y [rows, n], w [n] or null for no weight, rstd [rows] or null if not wanted:
//   y = x * rstd * w,   rstd = 1/sqrt(mean(x*x) + eps)
// y may be x if it is wide.
void rms_norm_forward(int64_t rows, int64_t n, float eps, ConstView x, const float* w, const Factor& y, float* rstd,
                      int threads);

// h, r, sum, y [rows, n]: sum = h + r and y = rms_norm(sum), in one pass; sum may be h. The gradient of h and of r is
// that of the sum.
void add_rms_norm_forward(int64_t rows, int64_t n, float eps, ConstView h, ConstView r, const float* w, View sum,
                          const Factor& y, float* rstd, int threads);

// y from x and the rstd [rows] that a forward call kept.
void rms_norm_apply(int64_t rows, int64_t n, ConstView x, const float* rstd, const float* w, const Factor& y,
                    int threads);

// dx [rows, n] += ..., dw [n] += ...; dw null: not wanted.
void rms_norm_backward(int64_t rows, int64_t n, ConstView x, const float* rstd, const float* w, ConstView dy, View dx,
                       float* dw, int threads);

}  // namespace deltanet::nn
