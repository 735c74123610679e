// Between float, bfloat16 and int8.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/narrow.cc"
#include "hwy/foreach_target.h"

#include <bit>
#include <cmath>

#include "hwy/highway.h"
#include "simd/modules.h"

HWY_BEFORE_NAMESPACE();
namespace deltanet::simd {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using DI32 = hn::RebindToSigned<D>;
using DU32 = hn::RebindToUnsigned<D>;
using Vec = hn::Vec<D>;
using VecU32 = hn::Vec<DU32>;

constexpr int64_t kLanes = HWY_LANES(float);

// Adding just less than half of the last kept place, or exactly half where that place is odd, rounds ties to even.
// Rounding could carry a NaN into infinity; it is made quiet instead.
HWY_INLINE uint16_t bf16_of(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

HWY_INLINE VecU32 bf16_bits(Vec x) {
  const DU32 d;
  const VecU32 bits = hn::BitCast(d, x);
  const VecU32 kept = hn::ShiftRight<16>(bits);
  const VecU32 half = hn::Add(hn::Set(d, 0x7fff), hn::And(kept, hn::Set(d, 1)));
  const VecU32 rounded = hn::ShiftRight<16>(hn::Add(bits, half));
  return hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(x)), hn::Or(kept, hn::Set(d, 0x40)), rounded);
}

void transpose_edge(int64_t rows, int64_t n, const float* x, int64_t ldx, uint16_t* y, int64_t ldy) {
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < rows; ++i) y[j * ldy + i] = bf16_of(x[i * ldx + j]);
  }
}

#if HWY_TARGET == HWY_SCALAR
void to_bf16_transposed(int64_t rows, int64_t n, const float* x, int64_t ldx, uint16_t* y, int64_t ldy) {
  transpose_edge(rows, n, x, ldx, y, ldy);
}
#else
constexpr int64_t kTallBlock = 32, kWideBlock = 16;  // 32 rows become one cache line of y

// Rows 2i and 2i+1 are rounded into the halves of one 32-bit word, and words are transposed in 4x4 blocks.
HWY_INLINE void transpose_block(const float* HWY_RESTRICT x, int64_t ldx, uint16_t* HWY_RESTRICT y, int64_t ldy) {
  constexpr int64_t kPairs = kTallBlock / 2;
  HWY_ALIGN uint32_t pairs[kPairs][kWideBlock];
  const D d;
  for (int64_t i = 0; i < kPairs; ++i) {
    const float *first = x + 2 * i * ldx, *second = first + ldx;
    for (int64_t j = 0; j < kWideBlock; j += kLanes) {
      const VecU32 low = bf16_bits(hn::LoadU(d, first + j)), high = bf16_bits(hn::LoadU(d, second + j));
      hn::Store(hn::Or(low, hn::ShiftLeft<16>(high)), DU32(), pairs[i] + j);
    }
  }
  const hn::FixedTag<uint32_t, 4> d32;
  const hn::FixedTag<uint64_t, 2> d64;
  const hn::FixedTag<uint16_t, 8> d16;
  for (int64_t j = 0; j < kWideBlock; j += 4) {
    for (int64_t i = 0; i < kPairs; i += 4) {
      const auto r0 = hn::Load(d32, pairs[i] + j), r1 = hn::Load(d32, pairs[i + 1] + j);
      const auto r2 = hn::Load(d32, pairs[i + 2] + j), r3 = hn::Load(d32, pairs[i + 3] + j);
      const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d32, r0, r1));
      const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d32, r2, r3));
      const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d32, r0, r1));
      const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d32, r2, r3));
      uint16_t* target = y + j * ldy + 2 * i;
      hn::StoreU(hn::BitCast(d16, hn::InterleaveLower(d64, low01, low23)), d16, target);
      hn::StoreU(hn::BitCast(d16, hn::InterleaveUpper(d64, low01, low23)), d16, target + ldy);
      hn::StoreU(hn::BitCast(d16, hn::InterleaveLower(d64, high01, high23)), d16, target + 2 * ldy);
      hn::StoreU(hn::BitCast(d16, hn::InterleaveUpper(d64, high01, high23)), d16, target + 3 * ldy);
    }
  }
}

void to_bf16_transposed(int64_t rows, int64_t n, const float* x, int64_t ldx, uint16_t* y, int64_t ldy) {
  const int64_t whole_rows = rows / kTallBlock * kTallBlock, whole_n = n / kWideBlock * kWideBlock;
  for (int64_t i = 0; i < whole_rows; i += kTallBlock) {
    for (int64_t j = 0; j < whole_n; j += kWideBlock) transpose_block(x + i * ldx + j, ldx, y + j * ldy + i, ldy);
  }
  transpose_edge(whole_rows, n - whole_n, x + whole_n, ldx, y + whole_n * ldy, ldy);
  transpose_edge(rows - whole_rows, n, x + whole_rows * ldx, ldx, y + whole_rows, ldy);
}
#endif

float to_int8(int64_t count, const float* HWY_RESTRICT x, int8_t* HWY_RESTRICT q) {
  const D d;
  Vec largest = hn::Zero(d), zeros = hn::Zero(d);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Vec at = hn::LoadU(d, x + i);
    largest = hn::Max(largest, hn::Abs(at));
    zeros = hn::MulAdd(at, hn::Zero(d), zeros);  // a maximum may lose a NaN, a sum does not
  }
  float top = hn::GetLane(hn::MaxOfLanes(d, largest)), zero = hn::GetLane(hn::SumOfLanes(d, zeros));
  for (; i < count; ++i) {
    top = std::fmax(top, std::fabs(x[i]));
    zero += 0.0f * x[i];
  }
  // Where 127 / top would overflow, all values count as zero.
  constexpr float kLevels = 127.0f, kSmallest = 1e-35f;
  const float inverse = top > kSmallest ? kLevels / top : 0.0f;
  const Vec factor = hn::Set(d, inverse);
  const hn::Rebind<int8_t, D> d8;
  for (i = 0; i + kLanes <= count; i += kLanes) {
    hn::StoreU(hn::DemoteTo(d8, hn::NearestInt(hn::Mul(factor, hn::LoadU(d, x + i)))), d8, q + i);
  }
  for (; i < count; ++i) {
    const float level = std::nearbyint(inverse * x[i]);
    q[i] = std::isnan(level) ? int8_t{0} : static_cast<int8_t>(level);
  }
  return (top > kSmallest ? top / kLevels : 0.0f) + zero;
}

void from_int8(int64_t count, float scale, const int8_t* HWY_RESTRICT q, float* HWY_RESTRICT y) {
  const D d;
  const hn::Rebind<int8_t, D> d8;
  const Vec factor = hn::Set(d, scale);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Vec level = hn::ConvertTo(d, hn::PromoteTo(DI32(), hn::LoadU(d8, q + i)));
    hn::StoreU(hn::Mul(factor, level), d, y + i);
  }
  for (; i < count; ++i) y[i] = scale * static_cast<float>(q[i]);
}

void rescale(int64_t count, const int32_t* HWY_RESTRICT sums, float row_scale, const float* column_scale,
             const float* bias, bool add, float* HWY_RESTRICT y) {
  const D d;
  const Vec factor = hn::Set(d, row_scale);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Vec sum = hn::ConvertTo(d, hn::LoadU(DI32(), sums + i));
    Vec value = hn::Mul(hn::Mul(factor, hn::LoadU(d, column_scale + i)), sum);
    if (bias) value = hn::Add(value, hn::LoadU(d, bias + i));
    if (add) value = hn::Add(value, hn::LoadU(d, y + i));
    hn::StoreU(value, d, y + i);
  }
  for (; i < count; ++i) {
    float value = row_scale * column_scale[i] * static_cast<float>(sums[i]);
    if (bias) value += bias[i];
    y[i] = add ? y[i] + value : value;
  }
}

void add_column_sums(int64_t rows, int64_t n, const float* HWY_RESTRICT x, int64_t ldx, float* HWY_RESTRICT sums) {
  const D d;
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    Vec total = hn::Zero(d);
    for (int64_t r = 0; r < rows; ++r) total = hn::Add(total, hn::LoadU(d, x + r * ldx + j));
    hn::StoreU(hn::Add(hn::LoadU(d, sums + j), total), d, sums + j);
  }
  for (; j < n; ++j) {
    float total = 0.0f;
    for (int64_t r = 0; r < rows; ++r) total += x[r * ldx + j];
    sums[j] += total;
  }
}

}  // namespace

void fill_narrow(Kernels& table) {
  table.narrow.to_bf16_transposed = to_bf16_transposed;
  table.narrow.to_int8 = to_int8;
  table.narrow.from_int8 = from_int8;
  table.narrow.rescale = rescale;
  table.narrow.add_column_sums = add_column_sums;
}

}  // namespace HWY_NAMESPACE
}  // namespace deltanet::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltanet::simd {
HWY_EXPORT(fill_narrow);
void add_narrow(Kernels& table) { HWY_DYNAMIC_DISPATCH(fill_narrow)(table); }
}  // namespace deltanet::simd
#endif
