// One token of one head: the decode step, the plain loop it is compared with, and the multiply-add peak.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/step.cc"
#include "hwy/foreach_target.h"

#include <chrono>

#include "hwy/highway.h"
#include "simd/modules.h"

HWY_BEFORE_NAMESPACE();
namespace deltanet::simd {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using Vec = hn::Vec<D>;

constexpr int64_t kLanes = HWY_LANES(float);

// Vectors of S that are walked together: two accumulators each must fit the register file.
constexpr int kWide = kLanes >= 16 ? 8 : 4;

// S is the caller's and has no padding: the last, partial vector of a row goes through a copy, because not every target
// has masked loads that stay inside the row.
template <bool kPartial>
struct Access {
  int64_t count;  // elements of a partial vector
  HWY_ATTR HWY_INLINE Vec load(const float* p) const {
    const D d;
    if constexpr (!kPartial) return hn::LoadU(d, p);
    HWY_ALIGN float copy[kLanes] = {};
    for (int64_t i = 0; i < count; ++i) copy[i] = p[i];
    return hn::Load(d, copy);
  }
  HWY_ATTR HWY_INLINE void store(Vec v, float* p) const {
    const D d;
    if constexpr (!kPartial) return hn::StoreU(v, d, p);
    HWY_ALIGN float copy[kLanes];
    hn::Store(v, d, copy);
    for (int64_t i = 0; i < count; ++i) p[i] = copy[i];
  }
};

// What the row has, known to the compiler.
template <bool kEraseT, bool kDiagT, bool kGivenT>
struct Form {
  static constexpr bool kErase = kEraseT;  // an erase key
  static constexpr bool kDiag = kDiagT;    // a decay vector
  static constexpr bool kGiven = kGivenT;  // DPLR's second write
};

// kVecs columns of vectors: the first pass reads S once for both S^T e and S^T q, the second decays and writes it while
// it is still in L1.
template <class F, int kVecs, bool kPartial>
HWY_INLINE void step_columns(const Step& p, int64_t column, const Access<kPartial>& access) {
  const D d;
  const int64_t k_rows = p.k_rows, lds = p.lds;
  const float *HWY_RESTRICT q = p.q, *HWY_RESTRICT e = p.e, *HWY_RESTRICT w = p.w, *HWY_RESTRICT k2 = p.k2;
  Vec erased[kVecs], read[kVecs];
  for (int v = 0; v < kVecs; ++v) erased[v] = read[v] = hn::Zero(d);
  const float* HWY_RESTRICT row = p.S + column;
  for (int64_t i = 0; i < k_rows; ++i, row += lds) {
    const Vec q_i = hn::Set(d, q[i]);
    Vec e_i;
    if constexpr (F::kErase) e_i = hn::Set(d, e[i]);
    for (int v = 0; v < kVecs; ++v) {
      const Vec s = access.load(row + v * kLanes);
      read[v] = hn::MulAdd(q_i, s, read[v]);
      if constexpr (F::kErase) erased[v] = hn::MulAdd(e_i, s, erased[v]);
    }
  }
  Vec delta[kVecs], given[kVecs];
  for (int v = 0; v < kVecs; ++v) {
    const int64_t at = column + v * kLanes;
    delta[v] = F::kGiven ? hn::Zero(d) : access.load(p.v + at);
    delta[v] = hn::Sub(delta[v], erased[v]);
    Vec o = hn::MulAdd(hn::Set(d, p.w_dot_q), delta[v], read[v]);
    if constexpr (F::kGiven) {
      given[v] = access.load(p.v2 + at);
      o = hn::MulAdd(hn::Set(d, p.k2_dot_q), given[v], o);
    }
    access.store(o, p.o + at);
  }
  Vec alpha = hn::Set(d, p.alpha_scalar);
  float* HWY_RESTRICT out = p.S + column;
  for (int64_t i = 0; i < k_rows; ++i, out += lds) {
    if constexpr (F::kDiag) alpha = hn::Set(d, p.alpha[i]);
    const Vec w_i = hn::Set(d, w[i]);
    for (int v = 0; v < kVecs; ++v) {
      Vec s = hn::MulAdd(w_i, delta[v], hn::Mul(alpha, access.load(out + v * kLanes)));
      if constexpr (F::kGiven) s = hn::MulAdd(hn::Set(d, k2[i]), given[v], s);
      access.store(s, out + v * kLanes);
    }
  }
}

template <class F>
void step_form(const Step& p) {
  const Access<false> full{kLanes};
  int64_t column = 0;
  for (; column + kWide * kLanes <= p.n; column += kWide * kLanes) step_columns<F, kWide>(p, column, full);
  for (; column + kLanes <= p.n; column += kLanes) step_columns<F, 1>(p, column, full);
  if (column < p.n) step_columns<F, 1>(p, column, Access<true>{p.n - column});
}

void step(const Step& p) {
  if (p.k2) return step_form<Form<true, true, true>>(p);
  if (p.e) return p.alpha ? step_form<Form<true, true, false>>(p) : step_form<Form<true, false, false>>(p);
  p.alpha ? step_form<Form<false, true, false>>(p) : step_form<Form<false, false, false>>(p);
}

// Scale, dot, axpy, dot: what one writes first. The compiler vectorizes it for the same target.
void plain_step(const Step& p) {
  for (int64_t i = 0; i < p.k_rows; ++i) {
    const float alpha = p.alpha ? p.alpha[i] : p.alpha_scalar;
    for (int64_t j = 0; j < p.n; ++j) p.S[i * p.lds + j] *= alpha;
  }
  float* HWY_RESTRICT delta = p.o;
  for (int64_t j = 0; j < p.n; ++j) delta[j] = p.v[j];
  for (int64_t i = 0; i < p.k_rows; ++i) {
    const float* HWY_RESTRICT row = p.S + i * p.lds;
    for (int64_t j = 0; j < p.n; ++j) delta[j] -= p.e[i] * row[j];
  }
  for (int64_t i = 0; i < p.k_rows; ++i) {
    float* HWY_RESTRICT row = p.S + i * p.lds;
    for (int64_t j = 0; j < p.n; ++j) row[j] += p.w[i] * delta[j];
  }
  float* HWY_RESTRICT o = p.o;
  for (int64_t j = 0; j < p.n; ++j) o[j] = 0.0f;
  for (int64_t i = 0; i < p.k_rows; ++i) {
    const float* HWY_RESTRICT row = p.S + i * p.lds;
    for (int64_t j = 0; j < p.n; ++j) o[j] += p.q[i] * row[j];
  }
}

// Twelve independent chains: enough for any latency x width of today's cores.
double fma_peak(double seconds) {
  constexpr int kChains = 12;
  const D d;
  Vec acc[kChains];
  for (int c = 0; c < kChains; ++c) acc[c] = hn::Set(d, 1.0f + static_cast<float>(c));
  const Vec scale = hn::Set(d, 0.999f);
  const Vec shift = hn::Set(d, 0.001f);
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  double elapsed = 0.0;
  double flops = 0.0;
  while (elapsed < seconds) {
    for (int repeat = 0; repeat < 20000; ++repeat) {
      for (int c = 0; c < kChains; ++c) acc[c] = hn::MulAdd(acc[c], scale, shift);
    }
    flops += 20000.0 * kChains * 2.0 * static_cast<double>(kLanes);
    elapsed = std::chrono::duration<double>(Clock::now() - start).count();
  }
  Vec total = acc[0];
  for (int c = 1; c < kChains; ++c) total = hn::Add(total, acc[c]);
  // The sum is positive; using it keeps the loop alive.
  return hn::GetLane(total) > 0.0f ? flops / elapsed * 1e-9 : 0.0;
}

}  // namespace

void fill_step(Kernels& table) {
  table.step = step;
  table.plain_step = plain_step;
  table.fma_peak = fma_peak;
}

}  // namespace HWY_NAMESPACE
}  // namespace deltanet::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltanet::simd {
HWY_EXPORT(fill_step);
void add_step(Kernels& table) { HWY_DYNAMIC_DISPATCH(fill_step)(table); }
}  // namespace deltanet::simd
#endif
