#pragma once

#include <cstdint>

#include "nn/factor.h"

namespace deltanet::nn {

// gate, up, y [rows, n]: y = silu(gate) * up. gate and up are usually the halves of one matrix [rows, 2n].
void swiglu_forward(int64_t rows, int64_t n, ConstView gate, ConstView up, const Factor& y, int threads);

// dgate and dup are set; wide ones may be gate and up. y, unless absent, is computed again: the gradient of the next
// weight needs it.
void swiglu_backward(int64_t rows, int64_t n, ConstView gate, ConstView up, ConstView dy, const Factor& dgate,
                     const Factor& dup, const Factor& y, int threads);

}  // namespace deltanet::nn
