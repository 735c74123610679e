#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/checkpoint/safetensors.h"

// The weights of a model as a directory in the layout of Hugging Face: model.safetensors, or several shards with
// model.safetensors.index.json, which says which tensor is in which.

namespace deltanet {

class CheckpointReader {
 public:
  // Throws Error where a file is missing or malformed, or where the index and the shards do not agree.
  explicit CheckpointReader(std::filesystem::path directory);

  const std::filesystem::path& directory() const { return directory_; }
  std::vector<std::string> names() const;                 // sorted
  const StoredTensor* find(std::string_view name) const;  // null: not there

  // Compares every tensor with its checksum.
  struct Check {
    int64_t tensors = 0, without = 0;       // without: has no checksum
    std::vector<std::string> damaged = {};  // FILE: tensor NAME
  };
  Check check_values(int threads = 0) const;

  // The tensor as floats. Throws Error where it is missing or has another shape.
  void copy_floats(std::string_view name, std::span<const int64_t> shape, float* out, int threads = 0) const;

 private:
  void read_shards(const std::filesystem::path& index);
  void add_all(const SafetensorsFile& file);

  std::filesystem::path directory_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string_view, const StoredTensor*> tensors_;
};

struct CheckpointOptions {
  DType dtype = DType::kF32;                    // F32 tensors are rounded to it; others stay
  int64_t max_shard_bytes = 50'000'000'000;     // of values; transformers' default. A larger tensor has its own shard.
  bool checksums = false;                       // a checksum of each tensor into the metadata of its file
  std::map<std::string, std::string> others{};  // more files of the directory, by name: config.json, tokenizer.json
};

// Makes the directory, or replaces the checkpoint in it. Shards are filled in the order given, and named and indexed as
// transformers does. If anything fails before all is on disk, such as a full disk, the old checkpoint stays as it was;
// after a crash at any moment the directory holds the old checkpoint, the new one, or one that cannot be read, never a
// mixture (see checkpoint_write.cc).
void write_checkpoint(const std::filesystem::path& directory, std::span<const StoredTensor> tensors,
                      const CheckpointOptions& options = {});

std::string shape_text(std::span<const int64_t> shape);  // "[2, 3]"

// Names in a checkpoint's directory.
inline constexpr std::string_view kSingleFile = "model.safetensors";
inline constexpr std::string_view kIndexFile = "model.safetensors.index.json";

}  // namespace deltanet
