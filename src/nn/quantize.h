#pragma once

#include <cstdint>

#include "nn/matmul/weight.h"

// Weights in narrower types. Rows are those of the matrix [rows, columns], dense; threads = 0 is default_threads().

namespace deltanet::nn {

// To the nearest bfloat16, ties to even.
void to_bfloat16(const float* w, int64_t rows, int64_t columns, uint16_t* narrow, int threads);

// w = scale[row] * q with scale = max|w| / 127 of the row, to the nearest; a zero row has scale 0.
void to_int8(const float* w, int64_t rows, int64_t columns, int8_t* q, float* scale, int threads);

// The values of a matrix of any type, [out, in].
void to_float32(const Weight& w, float* values, int threads);

}  // namespace deltanet::nn
