#include "model/checkpoint/dtype.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/parallel.h"
#include "deltanet/error.h"
#include "simd/kernels.h"

namespace deltanet {
namespace {

static_assert(std::endian::native == std::endian::little, "tensor files are little-endian and used as they are");

struct Row {
  std::string_view name;
  int64_t bytes;
  bool floating;
};

constexpr std::array<Row, 11> kDTypes = {{
    {"BOOL", 1, false},
    {"U8", 1, false},
    {"I8", 1, false},
    {"I16", 2, false},
    {"F16", 2, true},
    {"BF16", 2, true},
    {"I32", 4, false},
    {"F32", 4, true},
    {"F64", 8, true},
    {"I64", 8, false},
    {"unsupported", 0, false},
}};

const Row& row_of(DType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }

// Values per task: large enough to hide the cost of a task, small enough for a cache.
constexpr int64_t kPiece = 1 << 16;

template <class Convert>
void in_pieces(int64_t count, int threads, const Convert& convert) {
  parallel_for(threads, (count + kPiece - 1) / kPiece, [&](int64_t piece) {
    const int64_t begin = piece * kPiece;
    convert(begin, std::min(kPiece, count - begin));
  });
}

void f64_to_f32(int64_t count, const std::byte* x, float* y) {
  for (int64_t i = 0; i < count; ++i) {
    double value;
    std::memcpy(&value, x + i * 8, sizeof value);
    y[i] = static_cast<float>(value);
  }
}

void f32_to_f64(int64_t count, const float* x, std::byte* y) {
  for (int64_t i = 0; i < count; ++i) {
    float value;  // copied: the values of a file in memory may be at any address
    std::memcpy(&value, x + i, sizeof value);
    const double wide = value;
    std::memcpy(y + i * 8, &wide, sizeof wide);
  }
}

[[noreturn]] void not_floating(const char* operation, DType dtype) {
  throw Error("[" + std::string(operation) + "] dtype: given " + std::string(dtype_name(dtype)) +
              "; expected F64, F32, F16 or BF16");
}

}  // namespace

int64_t dtype_bytes(DType dtype) { return row_of(dtype).bytes; }
std::string_view dtype_name(DType dtype) { return row_of(dtype).name; }
bool is_floating(DType dtype) { return row_of(dtype).floating; }

DType dtype_of(std::string_view name) {
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  }
  return DType::kUnsupported;
}

void to_floats(DType dtype, int64_t count, const std::byte* x, float* y, int threads) {
  if (!is_floating(dtype)) not_floating("to_floats", dtype);
  const simd::ConvertKernels& convert = simd::kernels().convert;
  const int64_t size = dtype_bytes(dtype);
  in_pieces(count, threads, [&](int64_t begin, int64_t n) {
    const std::byte* from = x + begin * size;
    float* to = y + begin;
    if (dtype == DType::kF16) convert.f16_to_f32(n, from, to);
    if (dtype == DType::kBf16) convert.bf16_to_f32(n, from, to);
    if (dtype == DType::kF32) std::memcpy(to, from, static_cast<size_t>(n * size));
    if (dtype == DType::kF64) f64_to_f32(n, from, to);
  });
}

void from_floats(DType dtype, int64_t count, const float* x, std::byte* y, int threads) {
  if (!is_floating(dtype)) not_floating("from_floats", dtype);
  const simd::ConvertKernels& convert = simd::kernels().convert;
  const int64_t size = dtype_bytes(dtype);
  in_pieces(count, threads, [&](int64_t begin, int64_t n) {
    const float* from = x + begin;
    std::byte* to = y + begin * size;
    if (dtype == DType::kF16) convert.f32_to_f16(n, from, to);
    if (dtype == DType::kBf16) convert.f32_to_bf16(n, from, to);
    if (dtype == DType::kF32) std::memcpy(to, from, static_cast<size_t>(n * size));
    if (dtype == DType::kF64) f32_to_f64(n, from, to);
  });
}

}  // namespace deltanet
