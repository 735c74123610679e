// Conversions between float and the 16-bit formats, in integer arithmetic where all targets must round alike:
// Highway's own do not.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/convert.cc"
#include "hwy/foreach_target.h"

#include <algorithm>
#include <cstring>

#include "hwy/highway.h"
#include "simd/modules.h"

HWY_BEFORE_NAMESPACE();
namespace deltanet::simd {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::ScalableTag<float>;
using DU = hn::ScalableTag<uint32_t>;
using DI = hn::ScalableTag<int32_t>;
using Half = hn::Rebind<uint16_t, DF>;
using Bits = hn::Vec<DU>;

constexpr int64_t kLanes = HWY_LANES(float);
constexpr uint32_t kInfinity = 0x7f800000u;

HWY_INLINE Bits set(uint32_t value) { return hn::Set(DU(), value); }

// a > b as integers. Both are below 2^31, where signed comparison, which all targets have, is the same.
HWY_INLINE hn::Mask<DU> greater(Bits a, Bits b) {
  return hn::RebindMask(DU(), hn::Gt(hn::BitCast(DI(), a), hn::BitCast(DI(), b)));
}

// A number's bits moved by an exponent offset: the fields of the two formats line up after a shift of 13, and their
// biases differ by 112. Subnormal numbers are computed as 2^-14 + x minus 2^-14, which floats hold exactly.
struct FromF16 {
  HWY_INLINE Bits operator()(Bits h) const {
    const Bits sign = hn::ShiftLeft<16>(hn::And(h, set(0x8000u)));
    const Bits magnitude = hn::ShiftLeft<13>(hn::And(h, set(0x7fffu)));
    const Bits normal = hn::Add(magnitude, set(112u << 23));
    const Bits one_higher = hn::Add(magnitude, set(113u << 23));
    const auto subnormal = hn::Sub(hn::BitCast(DF(), one_higher), hn::Set(DF(), 0x1p-14f));
    const Bits special = hn::Or(magnitude, set(kInfinity));
    Bits y = hn::IfThenElse(greater(set(1u << 23), magnitude), hn::BitCast(DU(), subnormal), normal);
    y = hn::IfThenElse(greater(magnitude, set((31u << 23) - 1)), special, y);
    return hn::Or(y, sign);
  }
};

struct FromBf16 {
  HWY_INLINE Bits operator()(Bits h) const { return hn::ShiftLeft<16>(h); }
};

// Adds just under half of the last kept bit, or half if that bit is odd: the carry rounds, ties to even.
template <int kDropped>
HWY_INLINE Bits rounded(Bits x) {
  const Bits odd = hn::And(hn::ShiftRight<kDropped>(x), set(1));
  return hn::ShiftRight<kDropped>(hn::Add(hn::Add(x, set((1u << (kDropped - 1)) - 1)), odd));
}

struct ToF16 {
  HWY_INLINE Bits operator()(Bits x) const {
    const Bits magnitude = hn::And(x, set(0x7fffffffu));
    const Bits sign = hn::ShiftRight<16>(hn::And(x, set(0x80000000u)));
    const Bits normal = rounded<13>(hn::Sub(magnitude, set(112u << 23)));
    // Below 2^-14 the last place is 2^-24, as it is for floats in [1/2, 1): an addition rounds to it.
    const auto shifted = hn::Add(hn::BitCast(DF(), magnitude), hn::Set(DF(), 0.5f));
    const Bits subnormal = hn::Sub(hn::BitCast(DU(), shifted), set(0x3f000000u));
    const Bits nan = hn::Or(hn::And(hn::ShiftRight<13>(magnitude), set(0x3ffu)), set(0x7e00u));
    Bits y = hn::IfThenElse(greater(set(113u << 23), magnitude), subnormal, normal);
    y = hn::IfThenElse(greater(magnitude, set(0x477fefffu)), set(0x7c00u), y);  // from 65520 on
    y = hn::IfThenElse(greater(magnitude, set(kInfinity)), nan, y);
    return hn::Or(y, sign);
  }
};

struct ToBf16 {
  HWY_INLINE Bits operator()(Bits x) const {
    // Without the quiet bit, a NaN whose payload is in the dropped bits would become infinite.
    const Bits nan = hn::Or(hn::ShiftRight<16>(x), set(0x40u));
    const auto is_nan = greater(hn::And(x, set(0x7fffffffu)), set(kInfinity));
    return hn::IfThenElse(is_nan, nan, rounded<16>(x));
  }
};

HWY_INLINE void store_narrow(Bits h, uint16_t* y) {
  hn::StoreU(hn::DemoteTo(Half(), hn::BitCast(DI(), h)), Half(), y);  // saturates, but all values fit
}

struct ScaledToBf16 {
  float scale;
  HWY_INLINE void operator()(const float* x, uint16_t* y) const {
    const auto scaled = hn::Mul(hn::Set(DF(), scale), hn::LoadU(DF(), x));
    store_narrow(ToBf16()(hn::BitCast(DU(), scaled)), y);
  }
};

template <class Convert>
HWY_INLINE void widen(const uint16_t* x, float* y) {
  const Bits h = hn::PromoteTo(DU(), hn::LoadU(Half(), x));
  hn::StoreU(hn::BitCast(DF(), Convert()(h)), DF(), y);
}

template <class Convert>
HWY_INLINE void narrow(const float* x, uint16_t* y) {
  store_narrow(Convert()(hn::BitCast(DU(), hn::LoadU(DF(), x))), y);
}

// Calls convert on whole vectors; the last, partial one goes through buffers.
template <class To, class From, class Convert>
HWY_INLINE void for_all(int64_t count, const From* x, To* y, Convert convert) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) convert(x + i, y + i);
  if (i == count) return;
  From from[kLanes] = {};
  To to[kLanes];
  const size_t rest = static_cast<size_t>(count - i);
  std::memcpy(from, x + i, rest * sizeof(From));
  convert(from, to);
  std::memcpy(static_cast<void*>(y + i), to, rest * sizeof(To));
}

void f16_to_f32(int64_t count, const void* x, float* y) {
  for_all(count, static_cast<const uint16_t*>(x), y, widen<FromF16>);
}

void bf16_to_f32(int64_t count, const void* x, float* y) {
  for_all(count, static_cast<const uint16_t*>(x), y, widen<FromBf16>);
}

void f32_to_f16(int64_t count, const float* x, void* y) { for_all(count, x, static_cast<uint16_t*>(y), narrow<ToF16>); }

void f32_to_bf16(int64_t count, const float* x, void* y) {
  for_all(count, x, static_cast<uint16_t*>(y), narrow<ToBf16>);
}

void scaled_to_bf16(int64_t count, float scale, const float* x, void* y) {
  for_all(count, x, static_cast<uint16_t*>(y), ScaledToBf16{scale});
}

// Highway does not know the instruction that rounds 32 floats at once. It takes a quarter of the time.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
#define DELTANET_AVX512_BF16 1

__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) void scaled_to_bf16_at_once(int64_t count, float scale,
                                                                                            const float* x, void* y) {
  constexpr int64_t kFloats = 16;
  auto* narrow = static_cast<uint16_t*>(y);
  const __m512 factor = _mm512_set1_ps(scale);
  int64_t i = 0;
  for (; i + 2 * kFloats <= count; i += 2 * kFloats) {
    const __m512 low = _mm512_mul_ps(factor, _mm512_loadu_ps(x + i));
    const __m512 high = _mm512_mul_ps(factor, _mm512_loadu_ps(x + i + kFloats));
    _mm512_storeu_si512(narrow + i, (__m512i)_mm512_cvtne2ps_pbh(high, low));
  }
  while (i < count) {
    const int64_t rest = std::min(kFloats, count - i);
    const auto lanes = static_cast<__mmask16>((1u << rest) - 1);
    const __m512 scaled = _mm512_mul_ps(factor, _mm512_maskz_loadu_ps(lanes, x + i));
    _mm256_mask_storeu_epi16(narrow + i, lanes, (__m256i)_mm512_cvtneps_pbh(scaled));
    i += rest;
  }
}
#endif

}  // namespace

void fill_convert(Kernels& table) {
  table.convert = {f16_to_f32, bf16_to_f32, f32_to_f16, f32_to_bf16, scaled_to_bf16};
#ifdef DELTANET_AVX512_BF16
  if (__builtin_cpu_supports("avx512bf16")) table.convert.scaled_to_bf16 = scaled_to_bf16_at_once;
#undef DELTANET_AVX512_BF16
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace deltanet::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltanet::simd {
HWY_EXPORT(fill_convert);
void add_convert(Kernels& table) { HWY_DYNAMIC_DISPATCH(fill_convert)(table); }
}  // namespace deltanet::simd
#endif
