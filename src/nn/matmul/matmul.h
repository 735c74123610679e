#pragma once

#include <cstdint>

#include "nn/matmul/weight.h"

// Products of dense matrices of any size: by kernels of our own (panels.h) or by oneDNN (onednn.h).

namespace deltanet::nn {

// C [m,n] = A B + bias, or added to C. Sums are float32; of int8 factors they are exact and C is int32_t. Of a depth of
// zero panels.h makes the bias, oneDNN nothing.
struct Matmul {
  WeightType type = WeightType::kFloat32;  // of A and B
  int64_t m = 0, n = 0, depth = 0;
  const void* a = nullptr;  // [m][depth], or stored [depth][m]
  int64_t lda = 0;
  bool a_transposed = false;
  const void* b = nullptr;  // [depth][n], or stored [n][depth]
  int64_t ldb = 0;
  bool b_transposed = false;
  const float* bias = nullptr;  // [n] or null; not for int8
  void* c = nullptr;
  int64_t ldc = 0;
  bool add = false;  // not for int8
};

// threads = 0 is default_threads(). What is needed for a shape is made once per thread and kept: a call that is
// repeated on the same threads allocates nothing here.
void matmul(const Matmul& product, int threads);

// Whether this CPU multiplies pairs of this type faster than float32.
bool matmul_is_fast(WeightType type);

}  // namespace deltanet::nn
