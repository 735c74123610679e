// The diagonal preconditioner: second-moment scan, squash, and their gradient.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/precond.cc"
#include "hwy/foreach_target.h"

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "simd/modules.h"

HWY_BEFORE_NAMESPACE();
namespace deltanet::simd {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<D>;
using Vec = hn::Vec<D>;

constexpr int64_t kLanes = HWY_LANES(float);

HWY_INLINE float sum(Vec v) { return hn::GetLane(hn::SumOfLanes(D(), v)); }

// Horner's rule, highest power first.
template <int kTerms>
HWY_INLINE Vec polynomial(const float (&coefficients)[kTerms], Vec x) {
  const D d;
  Vec p = hn::Set(d, coefficients[0]);
  for (int i = 1; i < kTerms; ++i) p = hn::MulAdd(p, x, hn::Set(d, coefficients[i]));
  return p;
}

// 1/x for moderate positive x: the hardware's estimate and one Newton step.
HWY_INLINE Vec reciprocal(Vec x) {
  const D d;
  const Vec estimate = hn::ApproximateReciprocal(x);
  return hn::Mul(estimate, hn::NegMulAdd(x, estimate, hn::Set(d, 2.0f)));
}

// Natural logarithm of a positive normal number, absolute error below 1e-6: x = 2^e m with m in
// [2/3, 4/3), log m = f + f^2 p(f) with f = m - 1 and p a Chebyshev fit on [-1/3, 1/3]. The squash multiplies this
// error by at most log x < 0.7, so more digits would not be seen.
HWY_INLINE Vec fast_log(Vec x) {
  static constexpr float kFit[] = {0.16729102f, -0.18989818f, 0.19858718f, -0.24899696f, 0.33335334f, -0.5000063f};
  const D d;
  const DI di;
  const auto bits = hn::BitCast(di, x);
  const auto exponent = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3f2aaaab)));  // relative to 2/3
  const Vec f = hn::Sub(hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(exponent))), hn::Set(d, 1.0f));
  const Vec log_m = hn::MulAdd(polynomial(kFit, f), hn::Mul(f, f), f);
  return hn::MulAdd(hn::ConvertTo(d, exponent), hn::Set(d, 0.6931471806f), log_m);
}

// exp(x) for |x| <= log 2, which the squash guarantees: no range reduction. Chebyshev fit, relative error 6e-7.
HWY_INLINE Vec bounded_exp(Vec x) {
  static constexpr float kFit[] = {0.0014129006f, 0.008501596f, 0.041659437f, 0.16662613f,
                                   0.5000007f,    1.0000024f,   1.0f};
  return polynomial(kFit, x);
}

// B and, if wanted, dB/dA, at the second moment A (current or previous, as the kind says).
template <PrecondKind kKind, bool kSlope>
HWY_INLINE Vec preconditioner(const PrecondScan& p, int64_t column, Vec A, Vec& slope) {
  const D d;
  if constexpr (kKind == PrecondKind::kInverse || kKind == PrecondKind::kInversePrevious) {
    const Vec B = hn::Div(hn::Set(d, 1.0f), hn::Add(A, hn::Load(d, p.ridge + column)));
    if constexpr (kSlope) slope = hn::Neg(hn::Mul(B, B));
    return B;
  } else {
    const Vec one = hn::Set(d, 1.0f);
    const Vec shifted = hn::Add(A, hn::Set(d, p.eps));
    const Vec r = hn::Sub(fast_log(shifted), hn::Set(d, p.center));
    Vec s, ds;
    if constexpr (kKind == PrecondKind::kStableTanh) {
      // tanh r = sign(r) (1-t)/(1+t), t = exp(-2|r|). The slope 4t/(1+t)^2 keeps its digits where tanh saturates, which
      // 1 - tanh^2 does not.
      const Vec t = hn::Exp(d, hn::Mul(hn::Set(d, -2.0f), hn::Abs(r)));
      const Vec inverse = reciprocal(hn::Add(one, t));
      s = hn::CopySign(hn::Mul(hn::Sub(one, t), inverse), r);
      if constexpr (kSlope) ds = hn::Mul(hn::Set(d, 4.0f), hn::Mul(t, hn::Mul(inverse, inverse)));
    } else {
      const Vec inverse = reciprocal(hn::Add(one, hn::Abs(r)));
      s = hn::Mul(r, inverse);
      if constexpr (kSlope) ds = hn::Mul(inverse, inverse);
    }
    const Vec e1 = hn::Set(d, p.exponent_slope);
    const Vec B = bounded_exp(hn::MulAdd(e1, s, hn::Set(d, p.exponent_bias)));
    if constexpr (kSlope) slope = hn::Div(hn::Mul(hn::Mul(B, e1), ds), shifted);
    return B;
  }
}

template <PrecondKind kKind, bool kKeep>
void scan(const PrecondScan& p) {
  const D d;
  for (int64_t column = 0; column < p.n; column += kLanes) {
    Vec A = hn::Load(d, p.A + column);
    for (int64_t t = 0; t < p.rows; ++t) {
      const int64_t at = t * p.n + column;
      const Vec k = hn::Load(d, p.k + at);
      const Vec alpha = p.alpha_is_row ? hn::Load(d, p.alpha + at) : hn::Set(d, p.alpha[t]);
      const Vec previous = A;
      A = hn::MulAdd(hn::Mul(hn::Set(d, p.beta[t]), k), k, hn::Mul(alpha, previous));
      Vec slope;
      const Vec B = preconditioner<kKind, kKeep>(p, column, kKind == PrecondKind::kInversePrevious ? previous : A, slope);
      hn::Store(hn::Mul(B, hn::Load(d, p.x + at)), d, p.y + at);
      if constexpr (kKeep) {
        hn::Store(previous, d, p.A_previous + at);
        hn::Store(B, d, p.B + at);
        hn::Store(slope, d, p.slope + at);
      }
    }
    hn::Store(A, d, p.A + column);
  }
}

template <bool kKeep>
void scan_kind(const PrecondScan& p) {
  switch (p.kind) {
    case PrecondKind::kStableFast: return scan<PrecondKind::kStableFast, kKeep>(p);
    case PrecondKind::kStableTanh: return scan<PrecondKind::kStableTanh, kKeep>(p);
    case PrecondKind::kInverse: return scan<PrecondKind::kInverse, kKeep>(p);
    case PrecondKind::kInversePrevious: return scan<PrecondKind::kInversePrevious, kKeep>(p);
  }
}

void precond_scan(const PrecondScan& p) { p.B ? scan_kind<true>(p) : scan_kind<false>(p); }

// Tokens last to first. With y = B x and dA the gradient of A_t from everything after token t:
//   dB = dy*x, dx += dy*B;   dA += dB dB/dA  (to A_t, or to A_{t-1} after the scan step for the previous kind)
//   scan step A_t = alpha A_{t-1} + beta k*k:  dk += 2 beta k*dA, dbeta = sum k*k*dA, dlog alpha = alpha A_{t-1}*dA.
template <bool kPrevious, bool kStable>
void scan_grad(const PrecondScanGrad& p) {
  const D d;
  Vec dcenter = hn::Zero(d);
  for (int64_t t = p.rows - 1; t >= 0; --t) {
    Vec dbeta = hn::Zero(d);
    Vec dalpha_log = hn::Zero(d);
    const Vec beta = hn::Set(d, p.beta[t]);
    for (int64_t column = 0; column < p.n; column += kLanes) {
      const int64_t at = t * p.n + column;
      const Vec k = hn::Load(d, p.k + at);
      const Vec dy = hn::Load(d, p.dy + at);
      const Vec previous = hn::Load(d, p.A_previous + at);
      const Vec alpha = p.alpha_is_row ? hn::Load(d, p.alpha + at) : hn::Set(d, p.alpha[t]);
      hn::Store(hn::MulAdd(dy, hn::Load(d, p.B + at), hn::Load(d, p.dx + at)), d, p.dx + at);
      const Vec direct = hn::Mul(hn::Mul(dy, hn::Load(d, p.x + at)), hn::Load(d, p.slope + at));

      Vec dA = hn::Load(d, p.dA + column);
      if constexpr (!kPrevious) dA = hn::Add(dA, direct);
      const Vec decayed = hn::Mul(alpha, previous);
      if constexpr (kStable) {
        // dB/dcenter = -(A + eps) dB/dA, and A_t is recomputed rather than stored.
        const Vec A = hn::MulAdd(hn::Mul(beta, k), k, decayed);
        dcenter = hn::NegMulAdd(direct, hn::Add(A, hn::Set(d, p.eps)), dcenter);
      } else {
        hn::Store(hn::Add(hn::Load(d, p.dridge + column), direct), d, p.dridge + column);
      }
      const Vec kdA = hn::Mul(k, dA);
      hn::Store(hn::MulAdd(hn::Add(beta, beta), kdA, hn::Load(d, p.dk + at)), d, p.dk + at);
      dbeta = hn::MulAdd(k, kdA, dbeta);
      const Vec to_log = hn::Mul(decayed, dA);
      if (p.alpha_is_row) {
        hn::Store(hn::Add(hn::Load(d, p.dalpha_log + at), to_log), d, p.dalpha_log + at);
      } else {
        dalpha_log = hn::Add(dalpha_log, to_log);
      }
      dA = hn::Mul(alpha, dA);
      if constexpr (kPrevious) dA = hn::Add(dA, direct);
      hn::Store(dA, d, p.dA + column);
    }
    p.dbeta[t] = sum(dbeta);
    if (!p.alpha_is_row) p.dalpha_log[t] = sum(dalpha_log);
  }
  if constexpr (kStable) *p.dcenter += sum(dcenter);
}

void precond_scan_grad(const PrecondScanGrad& p) {
  switch (p.kind) {
    case PrecondKind::kStableFast:
    case PrecondKind::kStableTanh: return scan_grad<false, true>(p);
    case PrecondKind::kInverse: return scan_grad<false, false>(p);
    case PrecondKind::kInversePrevious: return scan_grad<true, false>(p);
  }
}

}  // namespace

void fill_precond(Kernels& table) {
  table.precond_scan = precond_scan;
  table.precond_scan_grad = precond_scan_grad;
}

}  // namespace HWY_NAMESPACE
}  // namespace deltanet::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltanet::simd {
HWY_EXPORT(fill_precond);
void add_precond(Kernels& table) { HWY_DYNAMIC_DISPATCH(fill_precond)(table); }
}  // namespace deltanet::simd
#endif
