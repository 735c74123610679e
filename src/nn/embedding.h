#pragma once

#include <cstdint>

#include "nn/matmul/weight.h"
#include "nn/rows.h"

namespace deltanet::nn {

// ids [rows], table [vocab, D], y [rows, D]: y_r = table[ids_r]. The ids are checked by the caller.
void embedding_forward(int64_t rows, const int32_t* ids, const Weight& table, Rows y, int threads);

// dtable [vocab, D] += the rows of dy [rows, D], each at its id, in the order of the rows.
void embedding_backward(int64_t rows, int64_t D, const int32_t* ids, ConstRows dy, float* dtable, int threads);

}  // namespace deltanet::nn
