#pragma once

#include <cstdint>

#include "nn/matmul/weight.h"
#include "nn/views.h"

namespace deltanet::nn {

// ids [tokens], table [vocab, D], y [tokens, D]: y_t = table[ids_t]. The ids are checked by the caller.
void embedding_forward(int64_t tokens, const int32_t* ids, const Weight& table, View y, int threads);

// dtable [vocab, D] += the rows of dy [tokens, D], each at its id, in the order of the tokens.
void embedding_backward(int64_t tokens, int64_t D, const int32_t* ids, ConstView dy, float* dtable, int threads);

}  // namespace deltanet::nn
