#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "model/checkpoint/dtype.h"

// The safetensors format: 8 bytes with the length of the header, a JSON header, and the values of all tensors.

namespace deltanet {

// A tensor in a file, or to be written to one: values in row-major order, in memory or from a source that gives them
// when they are asked for.
struct StoredTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;  // borrowed; at any address; null: ask the source
  int64_t bytes = 0;
  std::string dtype_name = {};  // as the file has it; of use where dtype is kUnsupported
  std::function<void(int64_t begin, int64_t bytes, void* to)> source = {};

  int64_t count() const;  // of values
  // Copies bytes [begin, begin + size) of the values, from memory or the source.
  void read(int64_t begin, int64_t size, void* to) const;
};

// The values as floats, out[count]. Throws Error naming the tensor where it has no floating dtype.
void copy_floats(const StoredTensor& tensor, float* out, int threads = 0);
// `count` of them from `begin` on, on the calling thread, where the dtype is known to be a floating one.
void read_floats(const StoredTensor& tensor, int64_t begin, int64_t count, float* out);

// Reads a file from anywhere: everything that the format demands is checked before a tensor is handed out, and an Error
// names the file, the tensor and the field. Tensors of dtypes that DType lacks are listed, but cannot be used.
class SafetensorsFile {
 public:
  using Metadata = std::map<std::string, std::string>;

  explicit SafetensorsFile(const std::filesystem::path& path);
  // The same over memory, which must live as long as this.
  SafetensorsFile(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const { return name_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // in the order of their values
  const StoredTensor* find(std::string_view name) const;                 // null: not there
  const Metadata& metadata() const { return metadata_; }

 private:
  using Read = std::function<void(int64_t begin, int64_t bytes, void* to)>;
  // Of so many bytes that read() gives; returns where the first tensor begins. The others follow in order.
  int64_t parse(int64_t size, const Read& read);

  std::string name_;                  // for errors
  std::unique_ptr<FileReader> file_;  // where the values are, unless they are in memory
  std::vector<StoredTensor> tensors_;
  std::map<std::string_view, size_t> by_name_;  // into the names of tensors_
  Metadata metadata_;
};

// In the metadata of a file, of the tensor of this name: hex_text() of a ContentHash of its bytes.
std::string checksum_key(std::string_view tensor);

// Sources are asked for so many values at once, from the first to the last.
inline constexpr int64_t kPieceValues = int64_t{1} << 20;

// Writes the same bytes as the safetensors library of Hugging Face. Tensors of dtype F32 are rounded to `f32_as`, piece
// by piece; others are written as they are. The version with an AtomicFile leaves the commit to its caller; there
// `metadata_at_end`, if given, is asked for values of the same lengths in the place of `metadata` after the last
// tensor: a checksum of what came from sources, for example. With `checksums`, the metadata also get one of each
// tensor.
void write_safetensors(AtomicFile& file, std::span<const StoredTensor> tensors,
                       const SafetensorsFile::Metadata& metadata, DType f32_as = DType::kF32,
                       const std::function<SafetensorsFile::Metadata()>& metadata_at_end = {}, bool checksums = false);
void write_safetensors(const std::filesystem::path& path, std::span<const StoredTensor> tensors,
                       const SafetensorsFile::Metadata& metadata, DType f32_as = DType::kF32);

}  // namespace deltanet
