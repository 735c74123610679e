#pragma once

#include <cstdint>

// int8 with a scale, as weights and activations, and sums over columns. Nothing needs alignment or padding. The 16-bit
// types are in convert.h.

namespace deltanet::simd {

struct NarrowKernels {
  // x = scale q with scale = max|x| / 127, to the nearest; returns the scale. A zero row has scale 0, a row with an
  // infinity or NaN has a scale that is not finite.
  float (*to_int8)(int64_t count, const float* x, int8_t* q);
  void (*from_int8)(int64_t count, float scale, const int8_t* q, float* y);

  // y = row_scale column_scale * sums + bias (or null), or added to y.
  void (*rescale)(int64_t count, const int32_t* sums, float row_scale, const float* column_scale, const float* bias,
                  bool add, float* y);

  void (*add_column_sums)(int64_t rows, int64_t n, const float* x, int64_t ldx, float* sums);  // sums [n]
};

}  // namespace deltanet::simd
