#pragma once

#include <cstdint>

// Products of a weight matrix with few rows of activations: the shape of decoding, bound by reading the weights once.

namespace deltanet::simd {

inline constexpr int kMatvecRows = 2;  // rows of w that are walked together

// y[r][o] = scale_o (x[r] . w[o]) + bias_o, or added to y, for some of the rows o of w [out][in]. Nothing needs
// alignment or padding; y must not overlap x.
struct Matvec {
  int64_t rows, in;    // of x
  const float* x;      // [rows][in], packed; one row with in = padded(in) is so as it is
  const void* w;       // [out][in]: float, bfloat16 or int8, dense
  const float* scale;  // [out], int8 only
  const float* bias;   // [out] or null
  // The rows o and o + apart for o in [begin, end), as far as they are below `out`. They lie far apart because each is
  // the front of a long run through memory, which is what hardware prefetchers follow at full speed. Neighboring rows
  // would be runs that jump after every row.
  int64_t begin, end, apart, out;
  float* y;  // [rows][out]
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
