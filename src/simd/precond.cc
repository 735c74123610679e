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
constexpr int kTogether = kLanes >= 16 ? 4 : 8;  // vectors of the key dimension that are scanned at once

HWY_INLINE float sum(Vec v) { return hn::GetLane(hn::SumOfLanes(D(), v)); }

// The scan is a chain of some thirty dependent operations per element. Neighbouring columns are independent, so each
// step is written for several of them at once: the processor's scheduler is too small to find them by itself.
template <int kVecs>
struct Pack {
  Vec v[kVecs];
};

template <int kVecs, class Op>
HWY_INLINE Pack<kVecs> map(const Op& op) {
  Pack<kVecs> out;
  for (int i = 0; i < kVecs; ++i) out.v[i] = op(i);
  return out;
}

#define DELTANET_MAP(expression) map<kVecs>([&]([[maybe_unused]] int i) HWY_ATTR { return expression; })

// Horner's rule, highest power first.
template <int kVecs, int kTerms>
HWY_INLINE Pack<kVecs> polynomial(const float* coefficients, const Pack<kVecs>& x) {
  const D d;
  Pack<kVecs> p = DELTANET_MAP(hn::Set(d, coefficients[0]));
  for (int term = 1; term < kTerms; ++term)
    p = DELTANET_MAP(hn::MulAdd(p.v[i], x.v[i], hn::Set(d, coefficients[term])));
  return p;
}

// 1/x for positive x in the range of the estimate: the hardware's estimate and one Newton step.
template <int kVecs>
HWY_INLINE Pack<kVecs> reciprocal(const Pack<kVecs>& x) {
  const D d;
  const Pack<kVecs> estimate = DELTANET_MAP(hn::ApproximateReciprocal(x.v[i]));
  return DELTANET_MAP(hn::Mul(estimate.v[i], hn::NegMulAdd(x.v[i], estimate.v[i], hn::Set(d, 2.0f))));
}

// log(x) - center for a positive normal x, absolute error below 1e-6: x = 2^e m with m in [2/3, 4/3), and
// log m = f p(f), f = m - 1, p a Chebyshev fit on [-1/3, 1/3]. The squash multiplies this error by at most log x < 0.7,
// so more digits would not be seen.
template <int kVecs>
HWY_INLINE Pack<kVecs> centred_log(const Pack<kVecs>& x, float center) {
  static constexpr float kFit[] = {0.16729102f, -0.18989818f, 0.19858718f, -0.24899696f,
                                   0.33335334f, -0.5000063f,  1.0f};
  const D d;
  const DI di;
  hn::Vec<DI> exponent[kVecs];
  for (int i = 0; i < kVecs; ++i) {
    exponent[i] = hn::ShiftRight<23>(hn::Sub(hn::BitCast(di, x.v[i]), hn::Set(di, 0x3f2aaaab)));  // relative to 2/3
  }
  const Pack<kVecs> m = DELTANET_MAP(hn::BitCast(d, hn::Sub(hn::BitCast(di, x.v[i]), hn::ShiftLeft<23>(exponent[i]))));
  const Pack<kVecs> f = DELTANET_MAP(hn::Sub(m.v[i], hn::Set(d, 1.0f)));
  const Pack<kVecs> p = polynomial<kVecs, 7>(kFit, f);
  const Pack<kVecs> whole =
      DELTANET_MAP(hn::MulAdd(hn::ConvertTo(d, exponent[i]), hn::Set(d, 0.6931471806f), hn::Set(d, -center)));
  return DELTANET_MAP(hn::MulAdd(p.v[i], f.v[i], whole.v[i]));
}

// B and, if wanted, dB/dA, at the second moment A (current or previous, as the kind says).
template <PrecondKind kKind, bool kSlope, int kTerms, int kVecs>
HWY_INLINE Pack<kVecs> preconditioner(const PrecondScan& p, int64_t column, const Pack<kVecs>& A, Pack<kVecs>& slope) {
  const D d;
  const Vec one = hn::Set(d, 1.0f);
  if constexpr (kKind == PrecondKind::kInverse || kKind == PrecondKind::kInversePrevious) {
    const Pack<kVecs> B = DELTANET_MAP(hn::Div(one, hn::Add(A.v[i], hn::Load(d, p.ridge + column + i * kLanes))));
    if constexpr (kSlope) slope = DELTANET_MAP(hn::Neg(hn::Mul(B.v[i], B.v[i])));
    return B;
  } else {
    const Pack<kVecs> shifted = DELTANET_MAP(hn::Add(A.v[i], hn::Set(d, p.eps)));
    const Pack<kVecs> r = centred_log(shifted, p.center);
    Pack<kVecs> s, ds;
    if constexpr (kKind == PrecondKind::kStableTanh) {
      // tanh r = sign(r) (1-t)/(1+t), t = exp(-2|r|). The slope 4t/(1+t)^2 keeps its digits where tanh saturates, which
      // 1 - tanh^2 does not.
      const Pack<kVecs> t = DELTANET_MAP(hn::Exp(d, hn::Mul(hn::Set(d, -2.0f), hn::Abs(r.v[i]))));
      const Pack<kVecs> inverse = reciprocal<kVecs>(DELTANET_MAP(hn::Add(one, t.v[i])));
      s = DELTANET_MAP(hn::CopySign(hn::Mul(hn::Sub(one, t.v[i]), inverse.v[i]), r.v[i]));
      if constexpr (kSlope) {
        ds = DELTANET_MAP(hn::Mul(hn::Set(d, 4.0f), hn::Mul(t.v[i], hn::Mul(inverse.v[i], inverse.v[i]))));
      }
    } else {
      const Pack<kVecs> inverse = reciprocal<kVecs>(DELTANET_MAP(hn::Add(one, hn::Abs(r.v[i]))));
      s = DELTANET_MAP(hn::Mul(r.v[i], inverse.v[i]));
      if constexpr (kSlope) ds = DELTANET_MAP(hn::Mul(inverse.v[i], inverse.v[i]));
    }
    const Pack<kVecs> B = polynomial<kVecs, kTerms>(p.curve->coefficients + SquashCurve::kTerms - kTerms, s);
    if constexpr (kSlope) {
      const Vec e1 = hn::Set(d, p.curve->slope);
      const Pack<kVecs> inverse_A = reciprocal(shifted);
      slope = DELTANET_MAP(hn::Mul(hn::Mul(hn::Mul(B.v[i], e1), ds.v[i]), inverse_A.v[i]));
    }
    return B;
  }
}

template <PrecondKind kKind, bool kKeep, int kTerms, int kVecs>
HWY_INLINE void scan_columns(const PrecondScan& p, int64_t column) {
  const D d;
  Pack<kVecs> A = DELTANET_MAP(hn::Load(d, p.A + column + i * kLanes));
  for (int64_t t = 0; t < p.rows; ++t) {
    const int64_t at = t * p.n + column;
    const Vec beta = hn::Set(d, p.beta[t]);
    const Vec alpha = hn::Set(d, p.alpha_is_row ? 0.0f : p.alpha[t]);
    const Pack<kVecs> k = DELTANET_MAP(hn::Load(d, p.k + at + i * kLanes));
    const Pack<kVecs> previous = A;
    if (p.alpha_is_row) {
      A = DELTANET_MAP(hn::Mul(hn::Load(d, p.alpha + at + i * kLanes), previous.v[i]));
    } else {
      A = DELTANET_MAP(hn::Mul(alpha, previous.v[i]));
    }
    A = DELTANET_MAP(hn::MulAdd(hn::Mul(beta, k.v[i]), k.v[i], A.v[i]));
    Pack<kVecs> slope;
    const Pack<kVecs> B = preconditioner<kKind, kKeep, kTerms, kVecs>(
        p, column, kKind == PrecondKind::kInversePrevious ? previous : A, slope);
    for (int i = 0; i < kVecs; ++i) {
      const int64_t here = at + i * kLanes;
      hn::Store(hn::Mul(B.v[i], hn::Load(d, p.x + here)), d, p.y + here);
      if constexpr (kKeep) {
        hn::Store(previous.v[i], d, p.A_previous + here);
        hn::Store(B.v[i], d, p.B + here);
        hn::Store(slope.v[i], d, p.slope + here);
      }
    }
  }
  for (int i = 0; i < kVecs; ++i) hn::Store(A.v[i], d, p.A + column + i * kLanes);
}

#undef DELTANET_MAP

template <PrecondKind kKind, bool kKeep, int kTerms>
void scan(const PrecondScan& p) {
  int64_t column = 0;
  for (; column + kTogether * kLanes <= p.n; column += kTogether * kLanes) {
    scan_columns<kKind, kKeep, kTerms, kTogether>(p, column);
  }
  for (; column < p.n; column += kLanes) scan_columns<kKind, kKeep, kTerms, 1>(p, column);
}

template <bool kKeep>
void scan_kind(const PrecondScan& p) {
  constexpr int kAll = SquashCurve::kTerms;
  switch (p.kind) {
    case PrecondKind::kStableFast:
      if (p.curve->coefficients[0] == 0.0f) return scan<PrecondKind::kStableFast, kKeep, kAll - 1>(p);
      return scan<PrecondKind::kStableFast, kKeep, kAll>(p);
    case PrecondKind::kStableTanh:
      return scan<PrecondKind::kStableTanh, kKeep, kAll>(p);
    case PrecondKind::kInverse:
      return scan<PrecondKind::kInverse, kKeep, kAll>(p);
    case PrecondKind::kInversePrevious:
      return scan<PrecondKind::kInversePrevious, kKeep, kAll>(p);
  }
}

// A alone, for states without operands.
void scan_moment(const PrecondScan& p) {
  const D d;
  for (int64_t column = 0; column < p.n; column += kLanes) {
    Vec A = hn::Load(d, p.A + column);
    for (int64_t t = 0; t < p.rows; ++t) {
      const int64_t at = t * p.n + column;
      const Vec k = hn::Load(d, p.k + at);
      const Vec alpha = p.alpha_is_row ? hn::Load(d, p.alpha + at) : hn::Set(d, p.alpha[t]);
      A = hn::MulAdd(hn::Mul(hn::Set(d, p.beta[t]), k), k, hn::Mul(alpha, A));
    }
    hn::Store(A, d, p.A + column);
  }
}

void precond_scan(const PrecondScan& p) {
  if (!p.y) return scan_moment(p);
  p.B ? scan_kind<true>(p) : scan_kind<false>(p);
}

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
    case PrecondKind::kStableTanh:
      return scan_grad<false, true>(p);
    case PrecondKind::kInverse:
      return scan_grad<false, false>(p);
    case PrecondKind::kInversePrevious:
      return scan_grad<true, false>(p);
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
