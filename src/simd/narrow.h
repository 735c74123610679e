#pragma once

#include <cstdint>

// Between float and the narrow types of weights: bfloat16 (as uint16_t) and int8 with a scale. Nothing needs alignment
// or padding.

namespace deltanet::simd {

struct NarrowKernels {
  // x [rows][n] to y [n][rows], to the nearest, ties to even; NaN stays NaN. Plain conversions are in convert.h.
  void (*to_bf16_transposed)(int64_t rows, int64_t n, const float* x, int64_t ldx, uint16_t* y, int64_t ldy);

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
