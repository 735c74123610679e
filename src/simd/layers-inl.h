// Vectors over rows of any length, and the functions that the layers apply to them. Included once per SIMD target.
#if defined(DELTANET_SIMD_LAYERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DELTANET_SIMD_LAYERS_INL_H_
#undef DELTANET_SIMD_LAYERS_INL_H_
#else
#define DELTANET_SIMD_LAYERS_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deltanet::simd {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<D>;
using Vec = hn::Vec<D>;

constexpr int64_t kLanes = HWY_LANES(float);

// Loops are written once, as a function of the column and of the lanes there: all of them, or those before the end of
// the row. Loading puts zeros into the others.
struct Whole {
  HWY_INLINE Vec load(const float* p) const { return hn::LoadU(D(), p); }
  HWY_INLINE void store(Vec v, float* p) const { hn::StoreU(v, D(), p); }
  HWY_INLINE Vec select(Vec v, Vec) const { return v; }
};

struct Part {
  int64_t count;

  HWY_INLINE Vec load(const float* p) const {
    const D d;
#if HWY_MEM_OPS_MIGHT_FAULT
    alignas(64) float lanes[kLanes] = {};
    std::memcpy(lanes, p, static_cast<size_t>(count) * sizeof(float));
    return hn::Load(d, lanes);
#else
    return hn::MaskedLoad(mask(), d, p);
#endif
  }
  HWY_INLINE void store(Vec v, float* p) const {
    const D d;
#if HWY_MEM_OPS_MIGHT_FAULT
    alignas(64) float lanes[kLanes];
    hn::Store(v, d, lanes);
    std::memcpy(p, lanes, static_cast<size_t>(count) * sizeof(float));
#else
    hn::BlendedStore(v, mask(), d, p);
#endif
  }
  HWY_INLINE Vec select(Vec v, Vec otherwise) const { return hn::IfThenElse(mask(), v, otherwise); }
  HWY_INLINE hn::Mask<D> mask() const { return hn::FirstN(D(), static_cast<size_t>(count)); }
};

// Asks for what a loop over rows will read `ahead` floats later: rows are too short for the hardware's prefetcher to
// see the next one coming. There may be none, so the address is a number and not a pointer into the matrix.
HWY_INLINE void ask_for(const float* p, int64_t ahead) {
  __builtin_prefetch(
      reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(ahead) * sizeof(float)));
}

// A loop body must become part of its loop, with the constants of the functions it calls kept in registers.
#define DELTANET_BODY HWY_ATTR __attribute__((always_inline))

template <class Body>
HWY_INLINE void for_lanes(int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, Whole());
  if (i < n) body(i, Part{n - i});
}

// Combines the lanes of a row in four chains, because each step of one chain waits for the one before.
template <class Step, class Join>
HWY_INLINE Vec fold_lanes(int64_t n, Vec start, const Step& step, const Join& join) {
  Vec acc[4] = {start, start, start, start};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int c = 0; c < 4; ++c) acc[c] = step(i + c * kLanes, Whole(), acc[c]);
  }
  for (; i + kLanes <= n; i += kLanes) acc[0] = step(i, Whole(), acc[0]);
  if (i < n) acc[1] = step(i, Part{n - i}, acc[1]);
  return join(join(acc[0], acc[1]), join(acc[2], acc[3]));
}

template <class Step>
HWY_INLINE float sum_lanes(int64_t n, const Step& step) {
  const D d;
  const Vec total = fold_lanes(n, hn::Zero(d), step, [](Vec a, Vec b) DELTANET_BODY { return hn::Add(a, b); });
  return hn::GetLane(hn::SumOfLanes(d, total));
}

template <int kTerms>
HWY_INLINE Vec polynomial(const float (&coefficients)[kTerms], Vec x) {  // highest power first
  const D d;
  Vec p = hn::Set(d, coefficients[0]);
  for (int term = 1; term < kTerms; ++term) p = hn::MulAdd(p, x, hn::Set(d, coefficients[term]));
  return p;
}

// The nearer to x of x and a bound; NaN where x is NaN.
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
// The second operand, if one is NaN.
HWY_INLINE Vec at_most(Vec bound, Vec x) { return hn::Min(bound, x); }
HWY_INLINE Vec at_least(Vec bound, Vec x) { return hn::Max(bound, x); }
#else
HWY_INLINE Vec at_most(Vec bound, Vec x) { return hn::IfThenElse(hn::Gt(x, bound), bound, x); }
HWY_INLINE Vec at_least(Vec bound, Vec x) { return hn::IfThenElse(hn::Lt(x, bound), bound, x); }
#endif

// exp(x) for x <= 0, within 2 ulp; 0 where the result would be subnormal, NaN for NaN. x = k log 2 + r, and
// exp(r) = 1 + r + r^2 p(r) with p fitted on |r| <= log(2)/2 (relative error 3e-9).
HWY_INLINE Vec exp_negative(Vec x) {
  static constexpr float kFit[] = {0.001381454f, 0.008368745f, 0.04166839f, 0.16666521f, 0.49999994f};
  const D d;
  const DI di;
  // Added to a number, this leaves k + 127 in the last bits of the sum, with k the nearest integer: the exponent of
  // 2^k.
  const Vec shift = hn::Set(d, 0x1.8p23f + 127);
  const Vec shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), shift);
  const Vec whole = hn::Sub(shifted, shift);
  // log 2 in two parts, the first short enough for an exact product.
  const Vec r = hn::NegMulAdd(whole, hn::Set(d, -2.12194440e-4f), hn::NegMulAdd(whole, hn::Set(d, 0.693359375f), x));
  const Vec p = hn::Add(hn::MulAdd(hn::Mul(r, r), polynomial(kFit, r), r), hn::Set(d, 1.0f));
  const Vec power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.3f)), hn::Mul(p, power));
}

// The same for any x; infinity from 88.4 on, where the result is almost as large as a float can be.
HWY_INLINE Vec exp_of(Vec x) { return exp_negative(at_most(hn::Set(D(), 88.4f), x)); }

// sigmoid(x), and 1 - sigmoid(x) with all its digits.
struct Sigmoid {
  Vec value, complement;
};

HWY_INLINE Sigmoid sigmoid_of(Vec x) {
  const D d;
  const Vec one = hn::Set(d, 1.0f);
  const Vec t = exp_negative(hn::Neg(hn::Abs(x)));
  const Vec larger = hn::Div(one, hn::Add(one, t));
  const Vec smaller = hn::Mul(t, larger);
  const auto positive = hn::Ge(x, hn::Zero(d));
  return {hn::IfThenElse(positive, larger, smaller), hn::IfThenElse(positive, smaller, larger)};
}

HWY_INLINE Vec silu_of(Vec x) { return hn::Mul(x, sigmoid_of(x).value); }

// d silu / dx = s + x s (1 - s)
HWY_INLINE Vec silu_slope(Vec x, const Sigmoid& s) { return hn::MulAdd(hn::Mul(x, s.value), s.complement, s.value); }

// log(1 + exp(x)) = max(x, 0) + log(1 + t), t = exp(-|x|) in [0, 1]. With z = t/(2 + t), log(1 + t) = 2 atanh z =
// z (2 + z^2 p(z^2)), p fitted on z <= 1/3 (relative error 5e-9): no digits are lost where t is tiny.
HWY_INLINE Vec softplus_of(Vec x) {
  static constexpr float kFit[] = {0.28025144f, 0.27999014f, 0.40021706f, 0.6666641f};
  const D d;
  const Vec two = hn::Set(d, 2.0f);
  const Vec t = exp_negative(hn::Neg(hn::Abs(x)));
  const Vec z = hn::Div(t, hn::Add(two, t));
  const Vec z2 = hn::Mul(z, z);
  return hn::MulAdd(z, hn::MulAdd(z2, polynomial(kFit, z2), two), hn::Max(x, hn::Zero(d)));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace deltanet::simd
HWY_AFTER_NAMESPACE();

#endif  // per target
