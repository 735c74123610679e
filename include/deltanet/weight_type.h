#pragma once

#include <string>
#include <string_view>

namespace deltanet {

// How the matrices of a model are stored and multiplied. Everything else, and every sum, is float32.
enum class WeightType {
  kFloat32,
  kBfloat16,
  kInt8,  // one scale per row; for inference only
};

// "f32", "bf16", "int8", and back; throws Error for any other word.
std::string weight_type_name(WeightType type);
WeightType parse_weight_type(std::string_view name);

}  // namespace deltanet
