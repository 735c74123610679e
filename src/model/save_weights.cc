#include "model/save_weights.h"

#include <utility>
#include <vector>

#include "deltanet/error.h"
#include "model/checkpoint/checkpoint.h"

namespace deltanet {
namespace {

namespace fs = std::filesystem;

DType save_dtype(const std::string& name) {
  if (name == "f32") return DType::kF32;
  if (name == "bf16") return DType::kBf16;
  if (name == "f16") return DType::kF16;
  throw Error("[save] dtype: given \"" + name + "\"; expected f32, bf16 or f16");
}

std::string torch_dtype(DType dtype) {
  return dtype == DType::kF32 ? "float32" : dtype == DType::kBf16 ? "bfloat16" : "float16";
}

}  // namespace

void save_weights(const Weights& weights, const fs::path& directory, const SaveOptions& options,
                  std::map<std::string, std::string> others, int threads) {
  const DType dtype = save_dtype(options.dtype);
  std::vector<StoredTensor> tensors;
  std::vector<std::vector<float>> copies;  // of matrices that are not float32 here
  for (const Parameter& parameter : weights.layout().parameters()) {
    const float* values = parameter.is_matrix ? weights.matrices() : weights.vectors();
    if (values) {
      values += parameter.offset;
    } else {
      copies.emplace_back(static_cast<std::size_t>(parameter.size));
      weights.copy_values(parameter, copies.back().data(), threads);
      values = copies.back().data();
    }
    tensors.push_back({.name = parameter.name,
                       .dtype = DType::kF32,
                       .shape = parameter.shape,
                       .data = reinterpret_cast<const std::byte*>(values),
                       .bytes = parameter.size * static_cast<int64_t>(sizeof(float))});
  }
  CheckpointOptions checkpoint{.dtype = dtype,
                               .max_shard_bytes = options.max_shard_bytes,
                               .checksums = options.checksums,
                               .others = std::move(others)};
  checkpoint.others["config.json"] = config_text(weights.layout().config(), torch_dtype(dtype));
  write_checkpoint(directory, tensors, checkpoint);
}

}  // namespace deltanet
