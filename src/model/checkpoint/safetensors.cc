#include "model/checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/json.h"
#include "base/parallel.h"
#include "deltanet/error.h"
#include "model/checkpoint/safetensors_header.h"

namespace deltanet {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr uint64_t kLongestHeader = 100'000'000;  // bytes; the limit of the safetensors library

class Context {
 public:
  explicit Context(const std::string& file) : file_(file) {}

  [[noreturn]] void fail(const std::string& what) const { throw Error("[safetensors] " + file_ + ": " + what); }
  [[noreturn]] void fail(const std::string& tensor, const std::string& what) const {
    fail("tensor " + in_quotes(tensor) + ", " + what);
  }

 private:
  const std::string& file_;
};

std::string list_text(const std::vector<int64_t>& values) {
  constexpr size_t kShown = 16;
  std::string text = "[";
  for (size_t i = 0; i < std::min(values.size(), kShown); ++i) text += (i ? ", " : "") + std::to_string(values[i]);
  return text + (values.size() > kShown ? ", ...]" : "]");
}

// product(shape) * item_bytes, or nothing where that exceeds 2^63-1.
std::optional<int64_t> byte_size(const std::vector<int64_t>& shape, int64_t item_bytes) {
  int64_t size = item_bytes;
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(size, extent, &size)) return {};
  }
  return size;
}

void check_size(const Context& context, const SafetensorsEntry& entry, DType dtype) {
  const std::optional<int64_t> size = byte_size(entry.shape, dtype_bytes(dtype));
  if (!size) context.fail(entry.name, "shape: given " + list_text(entry.shape) + "; its size exceeds 2^63-1 bytes");
  if (*size != entry.end - entry.begin) {
    context.fail(entry.name, "data_offsets: given " + std::to_string(entry.end - entry.begin) + " bytes; expected " +
                                 std::to_string(*size) + " for " + entry.dtype + " " + list_text(entry.shape));
  }
}

// The values must fill the file from the end of the header to the end of the file, each byte belonging to one tensor.
// Sorts the entries by their place.
void check_places(const Context& context, std::vector<SafetensorsEntry>& entries, int64_t data_bytes) {
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin <= entry.end && entry.end <= data_bytes) continue;
    context.fail(entry.name, "data_offsets: given " + list_text({entry.begin, entry.end}) +
                                 "; expected them in order and at most " + std::to_string(data_bytes));
  }
  const auto place = [](const SafetensorsEntry& e) { return std::tie(e.begin, e.end, e.name); };
  std::sort(entries.begin(), entries.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
  int64_t filled = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != filled) {
      context.fail(entry.name, "data_offsets: given " + list_text({entry.begin, entry.end}) + ", which " +
                                   (entry.begin < filled ? "overlaps another tensor" : "leaves a hole") +
                                   "; expected to begin at " + std::to_string(filled));
    }
    filled = entry.end;
  }
  if (filled != data_bytes) {
    context.fail("data: given " + std::to_string(data_bytes) + " bytes; expected " + std::to_string(filled) +
                 ", where the last tensor ends");
  }
}

}  // namespace

int64_t StoredTensor::count() const {
  if (dtype == DType::kUnsupported) {
    throw Error("[tensor] " + in_quotes(name) + ", dtype: given " + in_quotes(dtype_name) + ", which is not supported");
  }
  return bytes / dtype_bytes(dtype);
}

void StoredTensor::read(int64_t begin, int64_t size, void* to) const {
  if (size == 0) return;
  if (!data) return source(begin, size, to);
  std::memcpy(to, data + begin, static_cast<size_t>(size));
}

void read_floats(const StoredTensor& tensor, int64_t begin, int64_t count, float* out) {
  const int64_t width = dtype_bytes(tensor.dtype);
  if (tensor.data) return to_floats(tensor.dtype, count, tensor.data + begin * width, out, 1);
  if (tensor.dtype == DType::kF32) return tensor.read(begin * width, count * width, out);
  constexpr int64_t kPiece = int64_t{1} << 16;  // values; stays in the cache
  thread_local std::vector<std::byte> piece;
  for (int64_t done = 0; done < count; done += kPiece) {
    const int64_t n = std::min(kPiece, count - done);
    piece.resize(static_cast<size_t>(n * width));
    tensor.read((begin + done) * width, n * width, piece.data());
    to_floats(tensor.dtype, n, piece.data(), out + done, 1);
  }
}

void copy_floats(const StoredTensor& tensor, float* out, int threads) {
  if (!is_floating(tensor.dtype)) {
    throw Error(
        "[copy_floats] tensor " + in_quotes(tensor.name) + ", dtype: given " +
        (tensor.dtype == DType::kUnsupported ? in_quotes(tensor.dtype_name) : std::string(dtype_name(tensor.dtype))) +
        "; expected F64, F32, F16 or BF16");
  }
  constexpr int64_t kPiece = int64_t{1} << 20;
  parallel_blocks(threads, tensor.count(), kPiece,
                  [&](int64_t begin, int64_t end) { read_floats(tensor, begin, end - begin, out + begin); });
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : name_(path.string()), file_(std::make_unique<FileReader>(path)) {
  const FileReader& file = *file_;
  int64_t place = parse(file.size(), [&](int64_t begin, int64_t bytes, void* to) { file.read(begin, bytes, to); });
  for (StoredTensor& tensor : tensors_) {
    tensor.source = [&file, place](int64_t begin, int64_t bytes, void* to) { file.read(place + begin, bytes, to); };
    place += tensor.bytes;
  }
}

SafetensorsFile::SafetensorsFile(std::span<const std::byte> bytes, std::string name) : name_(std::move(name)) {
  int64_t place = parse(static_cast<int64_t>(bytes.size()), [&](int64_t begin, int64_t count, void* to) {
    std::memcpy(to, bytes.data() + begin, static_cast<size_t>(count));
  });
  for (StoredTensor& tensor : tensors_) {
    tensor.data = bytes.data() + place;
    place += tensor.bytes;
  }
}

int64_t SafetensorsFile::parse(int64_t size, const Read& read) {
  const Context context(name_);
  uint64_t length = 0;
  if (size < kLengthBytes) {
    context.fail("length of the header: given a file of " + std::to_string(size) + " bytes; expected 8 or more");
  }
  read(0, kLengthBytes, &length);
  const auto rest = static_cast<uint64_t>(size - kLengthBytes);
  if (length > std::min(rest, kLongestHeader)) {
    context.fail("length of the header: given " + std::to_string(length) + "; expected at most " +
                 (rest < kLongestHeader ? std::to_string(rest) + ", the rest of the file" : "100000000"));
  }
  std::string text(length, '\0');
  read(kLengthBytes, static_cast<int64_t>(length), text.data());
  SafetensorsHeader header = parse_safetensors_header(text, name_);

  check_places(context, header.entries, static_cast<int64_t>(rest - length));
  tensors_.reserve(header.entries.size());  // by_name_ keeps views of the names: they must not move
  for (SafetensorsEntry& entry : header.entries) {
    const DType dtype = dtype_of(entry.dtype);
    if (dtype != DType::kUnsupported) check_size(context, entry, dtype);
    tensors_.push_back({.name = std::move(entry.name),
                        .dtype = dtype,
                        .shape = std::move(entry.shape),
                        .bytes = entry.end - entry.begin,
                        .dtype_name = std::move(entry.dtype)});
    by_name_[tensors_.back().name] = tensors_.size() - 1;
  }
  metadata_ = std::move(header.metadata);
  return kLengthBytes + static_cast<int64_t>(length);
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace deltanet
