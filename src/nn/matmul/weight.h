#pragma once

#include <cstdint>

#include "deltanet/weight_type.h"

namespace deltanet::nn {

using deltanet::WeightType;

// A matrix [out, in] of a linear layer or an embedding table, row-major and dense. int8 rows carry one scale each:
// w = scale[row] * q.
struct Weight {
  WeightType type = WeightType::kFloat32;
  const void* data = nullptr;
  const float* scale = nullptr;
  int64_t out = 0, in = 0;
};

}  // namespace deltanet::nn
