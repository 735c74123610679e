#pragma once

#include <cstdint>

#include "nn/factor.h"
#include "nn/matmul/weight.h"

// The products of linear layers. Rows are tokens; sums are float32. Activations are factors (factor.h), usually
// float32.
//
// bfloat16 weights: with many rows, activations are rounded to bfloat16 where the CPU multiplies such pairs; otherwise
// weights are widened. int8 weights: with many rows, activations are rounded to int8 with a scale for each row where
// the CPU multiplies such pairs. With few rows (decoding) linear() rounds nothing. Narrow factors are given only where
// products round.
//
// threads = 0 is default_threads(). A repeated call allocates nothing.

namespace deltanet::nn {

// Elements of what products make on the way: longer inputs go through in parts. Tests make them smaller, so that small
// products have several parts; not while products run.
struct PartSizes {
  int64_t narrowed = 32 << 20;  // a factor that is rounded to bfloat16
  int64_t sums = 4 << 20;       // of int8, which wait for their scales
  int64_t widened = 1 << 20;    // weights as floats: stay in cache until they are used
};
PartSizes& part_sizes();

// Whether products of many rows with weights of this type round the other factor.
bool rounds_activations(WeightType type);

// The factor [rows, n] of a product with weights of this type, in memory of rows * wide_ld(n) floats.
Factor factor_for(WeightType type, int64_t rows, float* memory, int64_t n);

// y [rows,out] = x W^T + bias (or null), or added to y. y must not overlap x.
void linear(const ConstFactor& x, int64_t rows, const Weight& w, const float* bias, float* y, int64_t ldy, bool add,
            int threads);

// dx [rows,in] = dy W, or added to dx; W is float32 or bfloat16.
void linear_backward_input(const ConstFactor& dy, int64_t rows, const Weight& w, float* dx, int64_t lddx, bool add,
                           int threads);

// dw [out,in] = dy^T x, or added to dw; dbias [out] += the column sums of dy. dbias may be null; with it, dy must be
// wide. `products` is the type that the factors may be rounded to: float32 or bfloat16.
void linear_backward_weight(const ConstFactor& dy, const ConstFactor& x, int64_t rows, WeightType products, float* dw,
                            bool add, int64_t out, int64_t in, float* dbias, int threads);

// Both: dw and dbias as above, dx = dy W. dx must not overlap dy or x. What both round is rounded once.
void linear_backward(const ConstFactor& dy, const ConstFactor& x, int64_t rows, const Weight& w, float* dx,
                     int64_t lddx, float* dw, bool add, float* dbias, int threads);

}  // namespace deltanet::nn
