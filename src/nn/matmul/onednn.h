#pragma once

#include "nn/matmul/matmul.h"

// Products by oneDNN; nothing else of the library knows it.

namespace deltanet::nn {

// threads >= 1. What is needed for a shape is made once per thread and kept.
void onednn_matmul(const Matmul& product, int threads);

// Whether it multiplies numbers of this type without widening them first.
bool onednn_multiplies(WeightType type);
bool onednn_has_matrix_units(WeightType type);

}  // namespace deltanet::nn
