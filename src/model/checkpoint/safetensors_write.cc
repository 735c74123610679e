#include <algorithm>
#include <array>
#include <set>

#include "base/hash.h"
#include "base/json.h"
#include "deltanet/error.h"
#include "model/checkpoint/safetensors.h"

namespace deltanet {
namespace {

constexpr size_t kHeaderAlignment = 8;

struct Entry {
  const StoredTensor* tensor;
  DType dtype;  // in the file
  int64_t bytes;
  uint64_t checksum = 0;  // known when it is written
};

[[noreturn]] void refuse(const std::string& file, const StoredTensor& tensor, const std::string& what) {
  throw Error("[write_safetensors] " + file + ": tensor " + in_quotes(tensor.name) + ", " + what);
}

std::vector<Entry> checked_entries(const std::string& file, std::span<const StoredTensor> tensors, DType f32_as) {
  std::vector<Entry> entries;
  std::set<std::string_view> names;
  for (const StoredTensor& tensor : tensors) {
    const auto fail = [&](const std::string& what) { refuse(file, tensor, what); };
    if (tensor.name == "__metadata__" || !names.insert(tensor.name).second) fail("name: taken");
    if (tensor.dtype == DType::kUnsupported) fail("dtype: given " + in_quotes(tensor.dtype_name) + "; not supported");
    int64_t bytes = dtype_bytes(tensor.dtype);
    for (const int64_t extent : tensor.shape) {
      if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) fail("shape: negative or too large");
    }
    if (bytes != tensor.bytes) {
      fail("shape: of " + std::to_string(bytes) + " bytes; given " + std::to_string(tensor.bytes) + " bytes");
    }
    const DType dtype = tensor.dtype == DType::kF32 ? f32_as : tensor.dtype;
    entries.push_back({&tensor, dtype, tensor.count() * dtype_bytes(dtype)});
  }
  // The library's order: types with the strictest alignment first, so that all values are aligned.
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.dtype != b.dtype ? a.dtype > b.dtype : a.tensor->name < b.tensor->name;
  });
  return entries;
}

std::string header_text(const std::string& file, const std::vector<Entry>& entries,
                        const SafetensorsFile::Metadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  // push_back instead of [], which would search the whole list for each name.
  const auto add = [&](const std::string& name, nlohmann::ordered_json value) {
    header.get_ref<nlohmann::ordered_json::object_t&>().emplace_back(name, std::move(value));
  };
  if (!metadata.empty()) add("__metadata__", metadata);
  int64_t begin = 0;
  for (const Entry& entry : entries) {
    const int64_t end = begin + entry.bytes;
    add(entry.tensor->name, {{"dtype", dtype_name(entry.dtype)},
                             {"shape", entry.tensor->shape},
                             {"data_offsets", std::array<int64_t, 2>{begin, end}}});
    begin = end;
  }
  try {
    std::string text = header.dump();
    text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
    return text;
  } catch (const nlohmann::json::type_error& error) {  // thrown for strings that are not UTF-8
    throw Error("[write_safetensors] " + file + ": names and metadata: expected UTF-8 (" + error.what() + ")");
  }
}

void write_values(AtomicFile& file, Entry& entry, bool with_checksum) {
  const StoredTensor& tensor = *entry.tensor;
  const bool rounds = entry.dtype != tensor.dtype;
  ContentHash hash;
  const int64_t count = tensor.count(), width = dtype_bytes(tensor.dtype), most = std::min(kPieceValues, count);
  std::vector<std::byte> piece(static_cast<size_t>(tensor.data ? 0 : most * width));
  std::vector<std::byte> rounded(static_cast<size_t>(rounds ? most * dtype_bytes(entry.dtype) : 0));
  for (int64_t begin = 0; begin < count; begin += kPieceValues) {
    const int64_t n = std::min(kPieceValues, count - begin);
    const std::byte* values = tensor.data ? tensor.data + begin * width : piece.data();
    if (!tensor.data) tensor.read(begin * width, n * width, piece.data());
    if (rounds) from_floats(entry.dtype, n, reinterpret_cast<const float*>(values), rounded.data());
    const std::byte* written = rounds ? rounded.data() : values;
    const auto bytes = static_cast<size_t>(n * dtype_bytes(entry.dtype));
    if (with_checksum) hash.add(written, bytes);
    file.write(written, bytes);
  }
  entry.checksum = hash.value();
}

SafetensorsFile::Metadata with_checksums(SafetensorsFile::Metadata metadata, const std::vector<Entry>& entries) {
  for (const Entry& entry : entries) metadata[checksum_key(entry.tensor->name)] = hex_text(entry.checksum);
  return metadata;
}

}  // namespace

void write_safetensors(AtomicFile& file, std::span<const StoredTensor> tensors,
                       const SafetensorsFile::Metadata& metadata, DType f32_as,
                       const std::function<SafetensorsFile::Metadata()>& metadata_at_end, bool checksums) {
  const std::string name = file.target().string();
  if (!is_floating(f32_as)) {
    throw Error("[write_safetensors] " + name + ": dtype: given " + std::string(dtype_name(f32_as)) +
                "; expected F64, F32, F16 or BF16");
  }
  std::vector<Entry> entries = checked_entries(name, tensors, f32_as);
  const auto header_with = [&](const SafetensorsFile::Metadata& given) {
    return header_text(name, entries, checksums ? with_checksums(given, entries) : given);
  };
  const std::string header = header_with(metadata);
  const uint64_t length = header.size();
  file.write(&length, sizeof length);
  file.write(header);
  for (Entry& entry : entries) write_values(file, entry, checksums);
  if (!metadata_at_end && !checksums) return;
  const std::string complete = header_with(metadata_at_end ? metadata_at_end() : metadata);
  if (complete.size() != length) throw Error("[write_safetensors] " + name + ": metadata: another length at the end");
  file.overwrite(sizeof length, complete);
}

std::string checksum_key(std::string_view tensor) { return "checksum." + std::string(tensor); }

void write_safetensors(const std::filesystem::path& path, std::span<const StoredTensor> tensors,
                       const SafetensorsFile::Metadata& metadata, DType f32_as) {
  AtomicFile file(path);
  write_safetensors(file, tensors, metadata, f32_as);
  file.commit();
}

}  // namespace deltanet
