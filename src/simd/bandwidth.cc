#include "simd/bandwidth.h"

#include <algorithm>

#include "base/parallel.h"
#include "simd/kernels.h"

namespace deltanet::simd {
namespace {

constexpr int64_t kFloats = int64_t{1} << 28;  // 1 GiB
constexpr int64_t kPieces = 512;               // handed out one by one: a thread that is held up does not hold up all
constexpr int64_t kPiece = kFloats / kPieces;

}  // namespace

LargeArray::LargeArray(int threads) : data_(arena_.take(kFloats)), threads_(threads) {
  parallel_for(threads_, kPieces, [&](int64_t i) { std::fill_n(data_ + i * kPiece, kPiece, 1.0f); });
}

bool LargeArray::read() const {
  float sums[kPieces];
  parallel_for(threads_, kPieces, [&](int64_t i) { sums[i] = kernels().matvec.sum(kPiece, data_ + i * kPiece); });
  return std::all_of(sums, sums + kPieces, [](float sum) { return sum == static_cast<float>(kPiece); });
}

int64_t LargeArray::bytes() { return kFloats * static_cast<int64_t>(sizeof(float)); }

}  // namespace deltanet::simd
