// The gradient of the diagonal preconditioner.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/precond_grad.cc"
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
constexpr int kTogether = 4;  // vectors of the key dimension that are treated at once

HWY_INLINE float sum(Vec v) { return hn::GetLane(hn::SumOfLanes(D(), v)); }

// Sums over the key dimension, one vector per token, that the columns add to in turn.
struct RowSums {
  alignas(64) float beta[kChunk * kLanes] = {};
  alignas(64) float log_alpha[kChunk * kLanes] = {};
  alignas(64) float center[kLanes] = {};
};

HWY_INLINE void add_to(Vec v, float* sum_of_lanes) {
  hn::Store(hn::Add(hn::Load(D(), sum_of_lanes), v), D(), sum_of_lanes);
}

// Tokens last to first. With y = B x and dA the gradient of A_t from everything after token t:
//   dB = dy*x, dx += dy*B;   dA += dB dB/dA  (to A_t, or to A_{t-1} after the scan step for the previous kind)
//   scan step A_t = alpha A_{t-1} + beta k*k:  dk += 2 beta k*dA, dbeta = sum k*k*dA, dlog alpha = alpha A_{t-1}*dA.
template <bool kPrevious, bool kStable, bool kKeySide, int kVecs>
HWY_INLINE void scan_grad_columns(const PrecondScanGrad& p, int64_t column, RowSums& sums) {
  const D d;
  const Vec eps = hn::Set(d, p.eps);
  const bool alpha_is_row = p.alpha_is_row;
  const int64_t n = p.n;
  const float *keys = p.k, *dys = p.dy, *alphas = p.alpha, *betas = p.beta, *Bs = p.B, *slopes = p.slope;
  const float *xs = p.x, *A_previous = p.A_previous;
  float *dxs = p.dx, *dks = p.dk, *log_alpha_rows = p.dalpha_log;
  Vec dA[kVecs], dridge[kVecs];
  for (int i = 0; i < kVecs; ++i) {
    dA[i] = hn::Load(d, p.dA + column + i * kLanes);
    dridge[i] = hn::Zero(d);
  }
  Vec dcenter = hn::Load(d, sums.center);
  for (int64_t t = p.rows - 1; t >= 0; --t) {
    const Vec beta = hn::Set(d, betas[t]);
    const Vec twice = hn::Add(beta, beta);
    const Vec row_alpha = hn::Set(d, alpha_is_row ? 0.0f : alphas[t]);
    Vec dbeta = hn::Zero(d), dlog_alpha = hn::Zero(d);
    for (int i = 0; i < kVecs; ++i) {
      const int64_t at = t * n + column + i * kLanes;
      const Vec k = hn::Load(d, keys + at);
      const Vec dy = hn::Load(d, dys + at);
      const Vec alpha = alpha_is_row ? hn::Load(d, alphas + at) : row_alpha;
      const Vec x = kKeySide ? k : hn::Load(d, xs + at);
      const Vec dx = hn::MulAdd(dy, hn::Load(d, Bs + at), hn::Load(d, dxs + at));
      const Vec direct = hn::Mul(hn::Mul(dy, x), hn::Load(d, slopes + at));

      if constexpr (!kPrevious) dA[i] = hn::Add(dA[i], direct);
      const Vec decayed = hn::Mul(alpha, hn::Load(d, A_previous + at));
      if constexpr (kStable) {
        // dB/dcenter = -(A + eps) dB/dA, and A_t is recomputed rather than stored.
        const Vec A = hn::MulAdd(hn::Mul(beta, k), k, decayed);
        dcenter = hn::NegMulAdd(direct, hn::Add(A, eps), dcenter);
      } else {
        dridge[i] = hn::Add(dridge[i], direct);
      }
      const Vec kdA = hn::Mul(k, dA[i]);
      if constexpr (kKeySide) {
        hn::Store(hn::MulAdd(twice, kdA, dx), d, dks + at);
      } else {
        hn::Store(dx, d, dxs + at);
        hn::Store(hn::MulAdd(twice, kdA, hn::Load(d, dks + at)), d, dks + at);
      }
      dbeta = hn::MulAdd(k, kdA, dbeta);
      if (alpha_is_row) {
        hn::Store(hn::MulAdd(decayed, dA[i], hn::Load(d, log_alpha_rows + at)), d, log_alpha_rows + at);
      } else {
        dlog_alpha = hn::MulAdd(decayed, dA[i], dlog_alpha);
      }
      dA[i] = hn::Mul(alpha, dA[i]);
      if constexpr (kPrevious) dA[i] = hn::Add(dA[i], direct);
    }
    add_to(dbeta, sums.beta + t * kLanes);
    add_to(dlog_alpha, sums.log_alpha + t * kLanes);
  }
  hn::Store(dcenter, d, sums.center);
  for (int i = 0; i < kVecs; ++i) {
    hn::Store(dA[i], d, p.dA + column + i * kLanes);
    if constexpr (!kStable) add_to(dridge[i], p.dridge + column + i * kLanes);
  }
}

template <bool kPrevious, bool kStable, bool kKeySide>
void scan_grad(const PrecondScanGrad& p) {
  RowSums sums;
  int64_t column = 0;
  for (; column + kTogether * kLanes <= p.n; column += kTogether * kLanes) {
    scan_grad_columns<kPrevious, kStable, kKeySide, kTogether>(p, column, sums);
  }
  for (; column < p.n; column += kLanes) scan_grad_columns<kPrevious, kStable, kKeySide, 1>(p, column, sums);
  const D d;
  for (int64_t t = 0; t < p.rows; ++t) {
    p.dbeta[t] = sum(hn::Load(d, sums.beta + t * kLanes));
    if (!p.alpha_is_row) p.dalpha_log[t] = sum(hn::Load(d, sums.log_alpha + t * kLanes));
  }
  if constexpr (kStable) *p.dcenter += sum(hn::Load(d, sums.center));
}

// On the key side B multiplies the key itself, and both gradients go to the same place.
template <bool kPrevious, bool kStable>
void scan_grad(const PrecondScanGrad& p) {
  const bool key_side = p.x == p.k && p.dx == p.dk;
  key_side ? scan_grad<kPrevious, kStable, true>(p) : scan_grad<kPrevious, kStable, false>(p);
}

void precond_scan_grad(const PrecondScanGrad& p) {
  switch (p.kind) {
    case PrecondKind::kStableFast:
    case PrecondKind::kStableTanh:
      return scan_grad<false, true>(p);
    case PrecondKind::kInverse:
      return scan_grad<false, false>(p);
    case PrecondKind::kInversePrevious:
      return scan_grad<true, false>(p);
  }
}

}  // namespace

void fill_precond_grad(Kernels& table) { table.precond_scan_grad = precond_scan_grad; }

}  // namespace HWY_NAMESPACE
}  // namespace deltanet::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltanet::simd {
HWY_EXPORT(fill_precond_grad);
void add_precond_grad(Kernels& table) { HWY_DYNAMIC_DISPATCH(fill_precond_grad)(table); }
}  // namespace deltanet::simd
#endif
