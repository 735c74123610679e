#pragma once

#include "nn/matmul/matmul.h"

// Products of float32 or bfloat16 matrices by the kernels of simd/panels.h. The bits of a row of C depend on that row
// of A and on B alone: neither on the other rows nor on the threads.

namespace deltanet::nn {

// Whether `product` is computed here: the processor multiplies numbers of this type. Floats that are stored by depth,
// as in gradients of weights, also need the tall tiles of AVX-512; with shorter ones, oneDNN is faster.
bool panels_multiply(const Matmul& product);

void panels_matmul(const Matmul& product, int threads);  // threads >= 1

}  // namespace deltanet::nn
