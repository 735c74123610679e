#pragma once

#include <cstdint>

// Products of a weight matrix with few rows of activations: the shape of decoding, bound by reading the weights once.

namespace deltanet::simd {

// y[r][o] = scale_o (x[r] . w[o]) + bias_o, or added to y, for the weight rows o in [begin, end) of w [out][in].
// Nothing needs alignment or padding.
struct Matvec {
  int64_t rows, in;    // of x
  const float* x;      // [rows][in], packed
  const void* w;       // [out][in]: float, bfloat16 or int8, dense
  const float* scale;  // [out], int8 only
  const float* bias;   // [out] or null
  int64_t begin, end;  // rows of w
  float* y;            // [rows][out]
  int64_t ldy;
  bool add;
};

struct MatvecKernels {
  // Orders x [rows][in] as the products of this target read it, into rows * padded(in) aligned floats.
  void (*pack)(int64_t rows, int64_t in, const float* x, int64_t ldx, float* packed);
  void (*f32)(const Matvec&);
  void (*bf16)(const Matvec&);
  void (*int8)(const Matvec&);
  float (*sum)(int64_t count, const float* x);  // reads an array as fast as the memory allows
};

}  // namespace deltanet::simd
