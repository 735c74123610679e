// Interactions inside a chunk under a diagonal decay, by running each write key forward through the chunk.
//
// A chunk is short (16 tokens), so instead of scaling rows and columns around an anchor and multiplying matrices, the
// write key of token j is multiplied by one decay vector after another, w <- w * alpha_i, and met by the read keys on
// the way. That is one multiplication and two multiply-adds per pair and element, all factors are in [0, 1], strong
// decays simply reach zero, and the key decayed to the end of the chunk, which the state update needs, falls out.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/diag.cc"
#include "hwy/foreach_target.h"

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
// Vectors of one write key held in registers at a time.
constexpr int kBlock = kLanes >= 16 ? 8 : 4;

HWY_INLINE float sum(Vec v) { return hn::GetLane(hn::SumOfLanes(D(), v)); }

// Pairs of token j with all later tokens, over kVecs vectors of the key dimension starting at `column`.
template <int kVecs, bool kErase, bool kRead>
HWY_INLINE void run_key(const DiagIntra& p, int64_t j, int64_t column, Vec* HWY_RESTRICT sums_m,
                        Vec* HWY_RESTRICT sums_p) {
  const D d;
  Vec w[kVecs];
  Vec dot = hn::Zero(d);
  const int64_t start = j * p.n + column;
  for (int v = 0; v < kVecs; ++v) {
    w[v] = hn::Load(d, p.w + start + v * kLanes);
    if constexpr (kRead) dot = hn::MulAdd(hn::Load(d, p.q + start + v * kLanes), w[v], dot);
  }
  sums_p[j] = hn::Add(sums_p[j], dot);
  for (int64_t i = j + 1; i < kChunk; ++i) {
    const float* alpha = p.alpha + i * p.n + column;
    Vec dot_p = hn::Zero(d);
    Vec dot_m = hn::Zero(d);
    for (int v = 0; v < kVecs; ++v) {
      const Vec before = w[v];
      w[v] = hn::Mul(w[v], hn::Load(d, alpha + v * kLanes));
      if constexpr (kRead) dot_p = hn::MulAdd(hn::Load(d, p.q + i * p.n + column + v * kLanes), w[v], dot_p);
      if constexpr (kErase) {
        const Vec e = hn::Load(d, p.e + i * p.n + column + v * kLanes);
        dot_m = hn::MulAdd(e, before, dot_m);
      }
    }
    sums_p[i] = hn::Add(sums_p[i], dot_p);
    if constexpr (kErase) sums_m[i] = hn::Add(sums_m[i], dot_m);
  }
  for (int v = 0; v < kVecs; ++v) hn::Store(w[v], d, p.w_end + start + v * kLanes);
}

template <bool kErase, bool kRead>
void diag_intra_impl(const DiagIntra& p) {
  const D d;
  Vec sums_m[kChunk], sums_p[kChunk];
  for (int64_t j = 0; j < kChunk; ++j) {
    for (int64_t i = j; i < kChunk; ++i) sums_m[i] = sums_p[i] = hn::Zero(d);
    int64_t column = 0;
    for (; column + kBlock * kLanes <= p.n; column += kBlock * kLanes) {
      run_key<kBlock, kErase, kRead>(p, j, column, sums_m, sums_p);
    }
    for (; column < p.n; column += kLanes) run_key<1, kErase, kRead>(p, j, column, sums_m, sums_p);
    for (int64_t i = j; i < kChunk; ++i) {
      if constexpr (kRead) p.P[i * p.ldm + j] = sum(sums_p[i]);
      if constexpr (kErase) {
        if (i > j) p.M[i * p.ldm + j] = sum(sums_m[i]);
      }
    }
  }
}

void diag_intra(const DiagIntra& p) {
  if (!p.q) return p.e ? diag_intra_impl<true, false>(p) : diag_intra_impl<false, false>(p);
  p.e ? diag_intra_impl<true, true>(p) : diag_intra_impl<false, true>(p);
}

// The same walk backwards. `scratch` holds w_j^(i) for all i; dw runs from the end of the chunk to token j and collects
// what each meeting contributes; the gradient of log alpha_i is dw * w_j^(i) just before the decay is undone.
template <bool kErase>
void diag_intra_grad_impl(const DiagIntraGrad& g) {
  const D d;
  const DiagIntra& p = g.forward;
  const int64_t n = p.n;
  for (int64_t j = 0; j < kChunk; ++j) {
    for (int64_t column = 0; column < n; column += kLanes) {
      Vec w = hn::Load(d, p.w + j * n + column);
      hn::Store(w, d, g.scratch + j * n + column);
      for (int64_t i = j + 1; i < kChunk; ++i) {
        w = hn::Mul(w, hn::Load(d, p.alpha + i * n + column));
        hn::Store(w, d, g.scratch + i * n + column);
      }
      Vec dw = hn::Load(d, g.dw_end + j * n + column);
      Vec later = hn::Zero(d);  // gradient through e_{i+1}, which reads w_j^(i)
      for (int64_t i = kChunk - 1; i > j; --i) {
        const int64_t at = i * n + column;
        const Vec w_i = hn::Load(d, g.scratch + at);
        const Vec dP = hn::Set(d, g.dP[i * g.lddm + j]);
        dw = hn::Add(dw, later);
        dw = hn::MulAdd(dP, hn::Load(d, p.q + at), dw);
        hn::Store(hn::MulAdd(dP, w_i, hn::Load(d, g.dq + at)), d, g.dq + at);
        if constexpr (kErase) {
          const Vec dM = hn::Set(d, g.dM[i * g.lddm + j]);
          const Vec e = hn::Load(d, p.e + at);
          const Vec met = hn::Load(d, g.scratch + at - n);
          hn::Store(hn::MulAdd(dM, met, hn::Load(d, g.de + at)), d, g.de + at);
          later = hn::Mul(dM, e);
        }
        hn::Store(hn::MulAdd(dw, w_i, hn::Load(d, g.dalpha_log + at)), d, g.dalpha_log + at);
        dw = hn::Mul(dw, hn::Load(d, p.alpha + at));
      }
      const int64_t at = j * n + column;
      const Vec dP = hn::Set(d, g.dP[j * g.lddm + j]);
      dw = hn::Add(dw, later);
      dw = hn::MulAdd(dP, hn::Load(d, p.q + at), dw);
      hn::Store(hn::MulAdd(dP, hn::Load(d, p.w + at), hn::Load(d, g.dq + at)), d, g.dq + at);
      hn::Store(hn::Add(hn::Load(d, g.dw + at), dw), d, g.dw + at);
    }
  }
}

void diag_intra_grad(const DiagIntraGrad& g) {
  g.forward.e ? diag_intra_grad_impl<true>(g) : diag_intra_grad_impl<false>(g);
}

}  // namespace

void fill_diag(Kernels& table) {
  table.diag_intra = diag_intra;
  table.diag_intra_grad = diag_intra_grad;
}

}  // namespace HWY_NAMESPACE
}  // namespace deltanet::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltanet::simd {
HWY_EXPORT(fill_diag);
void add_diag(Kernels& table) { HWY_DYNAMIC_DISPATCH(fill_diag)(table); }
}  // namespace deltanet::simd
#endif
