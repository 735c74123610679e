// The diagonal preconditioner: second-moment scan, squash, and their gradient.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/precond.cc"
#include "hwy/foreach_target.h"

#include <cmath>
#include <limits>

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
constexpr float kLn2 = 0.6931471806f, kLog2E = 1.442695041f;
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

// log2 of a positive normal x: x = 2^e m with m in [1, 2), m c = 1 + f with c the reciprocal of the middle of m's
// interval, one of as many equal ones as a vector has lanes, looked up. log2(1 + f) is a short polynomial then: the
// scan is bound by the number of its instructions. The fits are good to 6e-8.
constexpr int kLogTerms = kLanes >= 16 ? 3 : kLanes >= 8 ? 4 : kLanes >= 4 ? 5 : 8;
constexpr float kLogFit16[] = {0.48127335f, -0.7216220f, 1.4426949f};
constexpr float kLogFit8[] = {-0.36205259f, 0.48214364f, -0.72134566f, 1.4426939f};
constexpr float kLogFit4[] = {0.2935127f, -0.36485064f, 0.48086405f, -0.72133154f, 1.4426951f};
constexpr float kLogFit1[] = {-0.23198201f, 0.25202674f, -0.23467967f, 0.28458792f,
                              -0.36092767f, 0.48101974f, -0.72134393f, 1.4426941f};

struct LogTable {
  alignas(64) float inverse[kLanes], log[kLanes];

  LogTable() {
    for (int64_t i = 0; i < kLanes; ++i) {
      inverse[i] = 2.0f * kLanes / (2.0f * (kLanes + i) + 1.0f);
      log[i] = static_cast<float>(-std::log2(static_cast<double>(inverse[i])));
    }
  }
};

const LogTable& log_table() {
  static const LogTable table;
  return table;
}

// x = 2^exponent m, m in [1, 2), with what the tables hold for m.
struct LogParts {
  Vec exponent, m, inverse, log;
};

HWY_INLINE LogParts log_parts(Vec inverses, Vec logs, Vec x) {
  const D d;
  const DI di;
  const auto bits = hn::BitCast(di, x);
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  // One instruction each; the lookup takes the low four bits of the index itself.
  const __m512i interval = _mm512_srli_epi32(bits.raw, 23 - 4);
  return {Vec{_mm512_getexp_ps(x.raw)}, Vec{_mm512_getmant_ps(x.raw, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_zero)},
          Vec{_mm512_permutexvar_ps(interval, inverses.raw)}, Vec{_mm512_permutexvar_ps(interval, logs.raw)}};
#else
  constexpr int kBits = kLanes >= 16 ? 4 : kLanes >= 8 ? 3 : kLanes >= 4 ? 2 : 0;
  const auto one = hn::Set(di, 0x3f800000);
  const auto at = hn::IndicesFromVec(d, hn::And(hn::ShiftRight<23 - kBits>(bits), hn::Set(di, kLanes - 1)));
  return {hn::ConvertTo(d, hn::ShiftRight<23>(hn::Sub(bits, one))),
          hn::BitCast(d, hn::Or(hn::And(bits, hn::Set(di, 0x7fffff)), one)), hn::TableLookupLanes(inverses, at),
          hn::TableLookupLanes(logs, at)};
#endif
}

// log2(x) - center, with the center taken off the table of logarithms already.
template <int kVecs>
HWY_INLINE Pack<kVecs> centred_log2(Vec inverses, Vec centred_logs, const Pack<kVecs>& x) {
  constexpr const float* kFit = kLanes >= 16 ? kLogFit16 : kLanes >= 8 ? kLogFit8 : kLanes >= 4 ? kLogFit4 : kLogFit1;
  Pack<kVecs> f, whole;
  for (int i = 0; i < kVecs; ++i) {
    const LogParts parts = log_parts(inverses, centred_logs, x.v[i]);
    f.v[i] = hn::MulSub(parts.m, parts.inverse, hn::Set(D(), 1.0f));
    whole.v[i] = hn::Add(parts.exponent, parts.log);
  }
  const Pack<kVecs> p = polynomial<kVecs, kLogTerms>(kFit, f);
  return DELTANET_MAP(hn::MulAdd(p.v[i], f.v[i], whole.v[i]));
}

// B and, if wanted, dB/dA, at the second moment A (current or previous, as the kind says).
template <PrecondKind kKind, bool kSlope, int kTerms, int kVecs>
HWY_INLINE Pack<kVecs> preconditioner(const PrecondScan& p, Vec inverses, Vec centred_logs, int64_t column,
                                      const Pack<kVecs>& A, Pack<kVecs>& slope) {
  const D d;
  const Vec one = hn::Set(d, 1.0f);
  if constexpr (kKind == PrecondKind::kInverse || kKind == PrecondKind::kInversePrevious) {
    const Pack<kVecs> B = DELTANET_MAP(hn::Div(one, hn::Add(A.v[i], hn::Load(d, p.ridge + column + i * kLanes))));
    if constexpr (kSlope) slope = DELTANET_MAP(hn::Neg(hn::Mul(B.v[i], B.v[i])));
    return B;
  } else {
    // Keys that are not normalised can overflow A; the logarithm of the largest float squashes as well as a larger one.
    const Pack<kVecs> shifted =
        DELTANET_MAP(hn::Min(hn::Add(A.v[i], hn::Set(d, p.eps)), hn::Set(d, std::numeric_limits<float>::max())));
    const Pack<kVecs> r = centred_log2<kVecs>(inverses, centred_logs, shifted);
    Pack<kVecs> s, ds;
    if constexpr (kKind == PrecondKind::kStableTanh) {
      // tanh r = sign(r) (1-t)/(1+t), t = exp(-2|r|). The slope 4t/(1+t)^2 keeps its digits where tanh saturates, which
      // 1 - tanh^2 does not.
      const Pack<kVecs> t = DELTANET_MAP(hn::Exp(d, hn::Mul(hn::Set(d, -2.0f * kLn2), hn::Abs(r.v[i]))));
      const Pack<kVecs> inverse = reciprocal<kVecs>(DELTANET_MAP(hn::Add(one, t.v[i])));
      s = DELTANET_MAP(hn::CopySign(hn::Mul(hn::Sub(one, t.v[i]), inverse.v[i]), r.v[i]));
      if constexpr (kSlope) {
        ds = DELTANET_MAP(hn::Mul(hn::Set(d, 4.0f), hn::Mul(t.v[i], hn::Mul(inverse.v[i], inverse.v[i]))));
      }
    } else {
      // |s| = |r|/(1+|r|) = 1 - 1/(1+|r|), all times ln 2 so that r can stay a logarithm to base 2.
      const Pack<kVecs> inverse = reciprocal<kVecs>(DELTANET_MAP(hn::Add(hn::Set(d, kLog2E), hn::Abs(r.v[i]))));
      s = DELTANET_MAP(hn::CopySign(hn::Sub(hn::Set(d, kLn2), inverse.v[i]), r.v[i]));
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
  const Vec inverses = hn::Load(d, log_table().inverse);
  const Vec centred_logs = hn::Sub(hn::Load(d, log_table().log), hn::Set(d, p.center * kLog2E));
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
        p, inverses, centred_logs, column, kKind == PrecondKind::kInversePrevious ? previous : A, slope);
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
template <bool kPrevious, bool kStable, bool kKeySide>
void scan_grad(const PrecondScanGrad& p) {
  const D d;
  Vec dcenter = hn::Zero(d);
  alignas(64) float dbeta[kChunk * kLanes] = {}, dalpha_log[kChunk * kLanes] = {};
  for (int64_t column = 0; column < p.n; column += kLanes) {
    Vec dA = hn::Load(d, p.dA + column);
    Vec dridge = hn::Zero(d);
    for (int64_t t = p.rows - 1; t >= 0; --t) {
      const int64_t at = t * p.n + column;
      const Vec beta = hn::Set(d, p.beta[t]);
      const Vec k = hn::Load(d, p.k + at);
      const Vec dy = hn::Load(d, p.dy + at);
      const Vec alpha = p.alpha_is_row ? hn::Load(d, p.alpha + at) : hn::Set(d, p.alpha[t]);
      const Vec x = kKeySide ? k : hn::Load(d, p.x + at);
      const Vec dx = hn::MulAdd(dy, hn::Load(d, p.B + at), hn::Load(d, p.dx + at));
      const Vec direct = hn::Mul(hn::Mul(dy, x), hn::Load(d, p.slope + at));

      if constexpr (!kPrevious) dA = hn::Add(dA, direct);
      const Vec decayed = hn::Mul(alpha, hn::Load(d, p.A_previous + at));
      if constexpr (kStable) {
        // dB/dcenter = -(A + eps) dB/dA, and A_t is recomputed rather than stored.
        const Vec A = hn::MulAdd(hn::Mul(beta, k), k, decayed);
        dcenter = hn::NegMulAdd(direct, hn::Add(A, hn::Set(d, p.eps)), dcenter);
      } else {
        dridge = hn::Add(dridge, direct);
      }
      const Vec kdA = hn::Mul(k, dA);
      const Vec twice = hn::Add(beta, beta);
      if constexpr (kKeySide) {
        hn::Store(hn::MulAdd(twice, kdA, dx), d, p.dk + at);
      } else {
        hn::Store(dx, d, p.dx + at);
        hn::Store(hn::MulAdd(twice, kdA, hn::Load(d, p.dk + at)), d, p.dk + at);
      }
      float* dbeta_lanes = dbeta + t * kLanes;
      hn::Store(hn::MulAdd(k, kdA, hn::Load(d, dbeta_lanes)), d, dbeta_lanes);
      float* to_log = p.alpha_is_row ? p.dalpha_log + at : dalpha_log + t * kLanes;
      hn::Store(hn::MulAdd(decayed, dA, hn::Load(d, to_log)), d, to_log);
      dA = hn::Mul(alpha, dA);
      if constexpr (kPrevious) dA = hn::Add(dA, direct);
    }
    hn::Store(dA, d, p.dA + column);
    if constexpr (!kStable) hn::Store(hn::Add(hn::Load(d, p.dridge + column), dridge), d, p.dridge + column);
  }
  for (int64_t t = 0; t < p.rows; ++t) {
    p.dbeta[t] = sum(hn::Load(d, dbeta + t * kLanes));
    if (!p.alpha_is_row) p.dalpha_log[t] = sum(hn::Load(d, dalpha_log + t * kLanes));
  }
  if constexpr (kStable) *p.dcenter += sum(dcenter);
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
