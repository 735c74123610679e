#include "nn/matmul/weight.h"

#include "deltanet/error.h"

namespace deltanet {

std::string weight_type_name(WeightType type) {
  switch (type) {
    case WeightType::kFloat32:
      return "f32";
    case WeightType::kBfloat16:
      return "bf16";
    case WeightType::kInt8:
      return "int8";
  }
  return "?";
}

WeightType parse_weight_type(std::string_view name) {
  for (const WeightType type : {WeightType::kFloat32, WeightType::kBfloat16, WeightType::kInt8}) {
    if (weight_type_name(type) == name) return type;
  }
  throw Error("[weights] given \"" + std::string(name) + "\"; expected f32, bf16 or int8");
}

}  // namespace deltanet
