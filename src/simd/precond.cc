// The diagonal preconditioner: second-moment scan and squash.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/precond.cc"
#include "hwy/foreach_target.h"

#include <cmath>
#include <limits>

#include "hwy/highway.h"
#include "simd/layers-inl.h"
#include "simd/modules.h"

HWY_BEFORE_NAMESPACE();
namespace deltanet::simd {
namespace HWY_NAMESPACE {
namespace {

constexpr float kLn2 = 0.6931471806f, kLog2E = 1.442695041f;
constexpr int kTogether = 4;  // vectors of the key dimension that are treated at once

// The scan is a chain of some thirty dependent operations per element. Neighboring columns are independent, so each
// step is written for several of them at once: the processor's scheduler is too small to find them by itself. The
// stable kinds take two passes over a chunk, the logarithm of A and then its squash, because the constants of both
// together do not fit into sixteen registers.
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
HWY_INLINE Pack<kVecs> polynomial(const Vec (&coefficients)[kTerms], const Pack<kVecs>& x) {
  Pack<kVecs> p = DELTANET_MAP(coefficients[0]);
  for (int term = 1; term < kTerms; ++term) p = DELTANET_MAP(hn::MulAdd(p.v[i], x.v[i], coefficients[term]));
  return p;
}

// 1/x for positive x in the range of the hardware's estimate, as the two factors of one Newton step.
template <int kVecs>
struct Reciprocal {
  Pack<kVecs> estimate, correction;

  HWY_INLINE explicit Reciprocal(const Pack<kVecs>& x) {
    estimate = DELTANET_MAP(hn::ApproximateReciprocal(x.v[i]));
    correction = DELTANET_MAP(hn::NegMulAdd(x.v[i], estimate.v[i], hn::Set(D(), 2.0f)));
  }
  HWY_INLINE Pack<kVecs> product() const { return DELTANET_MAP(hn::Mul(estimate.v[i], correction.v[i])); }
};

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
  return {Vec{_mm512_getexp_ps(x.raw)}, Vec{_mm512_getmant_ps(x.raw, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_nan)},
          Vec{_mm512_permutexvar_ps(interval, inverses.raw)}, Vec{_mm512_permutexvar_ps(interval, logs.raw)}};
#else
  const auto one = hn::Set(di, 0x3f800000);
  const Vec exponent = hn::ConvertTo(d, hn::ShiftRight<23>(hn::Sub(bits, one)));
  const Vec m = hn::BitCast(d, hn::Or(hn::And(bits, hn::Set(di, 0x7fffff)), one));
#if HWY_TARGET == HWY_AVX2
  const __m256i interval = _mm256_srli_epi32(bits.raw, 23 - 3);  // the low three bits count here, too
  return {exponent, m, Vec{_mm256_permutevar8x32_ps(inverses.raw, interval)},
          Vec{_mm256_permutevar8x32_ps(logs.raw, interval)}};
#else
  constexpr int kBits = kLanes >= 16 ? 4 : kLanes >= 8 ? 3 : kLanes >= 4 ? 2 : 0;
  const auto at = hn::IndicesFromVec(d, hn::And(hn::ShiftRight<23 - kBits>(bits), hn::Set(di, kLanes - 1)));
  return {exponent, m, hn::TableLookupLanes(inverses, at), hn::TableLookupLanes(logs, at)};
#endif
#endif
}

// Constants are kept as vectors: reading them again from where they came from would be needed after every store of
// floats, as far as the compiler can tell.
struct LogConstants {
  Vec inverses, centered_logs;  // the center is taken off the table of logarithms already
  Vec fit[kLogTerms];

  explicit LogConstants(float center)
      : inverses(hn::Load(D(), log_table().inverse)),
        centered_logs(hn::Sub(hn::Load(D(), log_table().log), hn::Set(D(), center * kLog2E))) {
    constexpr const float* kFit = kLanes >= 16 ? kLogFit16 : kLanes >= 8 ? kLogFit8 : kLanes >= 4 ? kLogFit4 : kLogFit1;
    for (int i = 0; i < kLogTerms; ++i) fit[i] = hn::Set(D(), kFit[i]);
  }
};

// log2(x) - center.
template <int kVecs>
HWY_INLINE Pack<kVecs> centered_log2(const LogConstants& constants, const Pack<kVecs>& x) {
  Pack<kVecs> f, whole;
  for (int i = 0; i < kVecs; ++i) {
    const LogParts parts = log_parts(constants.inverses, constants.centered_logs, x.v[i]);
    f.v[i] = hn::MulSub(parts.m, parts.inverse, hn::Set(D(), 1.0f));
    whole.v[i] = hn::Add(parts.exponent, parts.log);
  }
  const Pack<kVecs> p = polynomial<kVecs>(constants.fit, f);
  return DELTANET_MAP(hn::MulAdd(p.v[i], f.v[i], whole.v[i]));
}

// The logarithm of x, NaN where x has none because it is NaN or negative: its bits look like those of a number.
HWY_INLINE Vec log_or_nan([[maybe_unused]] Vec x, Vec log) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  return log;  // is NaN, because the mantissa is
#else
  return hn::IfThenElse(hn::Ge(x, hn::Zero(D())), log, hn::NaN(D()));
#endif
}

template <int kTerms>
struct CurveConstants {
  Vec coefficients[kTerms];
  Vec slope;

  explicit CurveConstants(const SquashCurve& curve) : slope(hn::Set(D(), curve.slope)) {
    for (int i = 0; i < kTerms; ++i) {
      coefficients[i] = hn::Set(D(), curve.coefficients[SquashCurve::kTerms - kTerms + i]);
    }
  }
};

// From r = log2(A + eps) - center, which y holds, to B x, and from the 1/(A + eps) that slope holds to dB/dA.
template <PrecondKind kKind, bool kKeep, int kVecs, int kTerms>
HWY_INLINE void squash(const CurveConstants<kTerms>& curve, int64_t at, const float* x, float* y, float* B_out,
                       float* slope) {
  const D d;
  const Vec one = hn::Set(d, 1.0f);
  const Pack<kVecs> r = DELTANET_MAP(hn::Load(d, y + at + i * kLanes));
  Pack<kVecs> s, ds;
  if constexpr (kKind == PrecondKind::kStableTanh) {
    // tanh r = sign(r) (1-t)/(1+t), t = exp(-2|r|). The slope 4t/(1+t)^2 keeps its digits where tanh saturates, which
    // 1 - tanh^2 does not.
    const Pack<kVecs> t = DELTANET_MAP(exp_negative(hn::Mul(hn::Set(d, -2.0f * kLn2), hn::Abs(r.v[i]))));
    const Pack<kVecs> inverse = Reciprocal<kVecs>(DELTANET_MAP(hn::Add(one, t.v[i]))).product();
    s = DELTANET_MAP(hn::CopySign(hn::Mul(hn::Sub(one, t.v[i]), inverse.v[i]), r.v[i]));
    if constexpr (kKeep) {
      ds = DELTANET_MAP(hn::Mul(hn::Set(d, 4.0f), hn::Mul(t.v[i], hn::Mul(inverse.v[i], inverse.v[i]))));
    }
  } else {
    // |s| = |r|/(1+|r|) = 1 - 1/(1+|r|), all times ln 2 so that r can stay a logarithm to base 2.
    const Reciprocal<kVecs> inverse(DELTANET_MAP(hn::Add(hn::Set(d, kLog2E), hn::Abs(r.v[i]))));
    s = DELTANET_MAP(
        hn::CopySign(hn::NegMulAdd(inverse.estimate.v[i], inverse.correction.v[i], hn::Set(d, kLn2)), r.v[i]));
    if constexpr (kKeep) {
      const Pack<kVecs> product = inverse.product();
      ds = DELTANET_MAP(hn::Mul(product.v[i], product.v[i]));
    }
  }
  const Pack<kVecs> B = polynomial<kVecs>(curve.coefficients, s);
  for (int i = 0; i < kVecs; ++i) {
    const int64_t here = at + i * kLanes;
    hn::Store(hn::Mul(B.v[i], hn::Load(d, x + here)), d, y + here);
    if constexpr (kKeep) {
      const Vec scaled = hn::Mul(B.v[i], hn::Mul(curve.slope, ds.v[i]));
      hn::Store(hn::Mul(scaled, hn::Load(d, slope + here)), d, slope + here);
      hn::Store(B.v[i], d, B_out + here);
    }
  }
}

template <PrecondKind kKind, bool kKeep, int kTerms>
HWY_INLINE void squash_all(const PrecondScan& p) {
  const CurveConstants<kTerms> curve(*p.curve);
  const int64_t elements = p.rows * p.n;
  const float* x = p.x;
  float *y = p.y, *B = p.B, *slope = p.slope;
  int64_t at = 0;
  for (; at + kTogether * kLanes <= elements; at += kTogether * kLanes) {
    squash<kKind, kKeep, kTogether>(curve, at, x, y, B, slope);
  }
  for (; at < elements; at += kLanes) squash<kKind, kKeep, 1>(curve, at, x, y, B, slope);
}

// A over the tokens of a call: what it was before them, decayed, and what they have added. `add` takes the next token.
template <int kVecs>
struct Moment {
  // Copies, for the reason of LogConstants.
  const float *alphas, *betas, *total;
  const bool alpha_is_row;
  const int64_t n, column;
  float* state;
  Pack<kVecs> A, before, added;

  HWY_INLINE Moment(const PrecondScan& p, int64_t first_column)
      : alphas(p.alpha),
        betas(p.beta),
        total(p.total),
        alpha_is_row(p.alpha_is_row),
        n(p.n),
        column(first_column),
        state(p.A + first_column) {
    A = before = DELTANET_MAP(hn::Load(D(), state + i * kLanes));
    added = DELTANET_MAP(hn::Zero(D()));
  }

  HWY_INLINE void add(int64_t t, const Pack<kVecs>& k) {
    const D d;
    const Vec beta = hn::Set(d, betas[t]);
    if (alpha_is_row) {
      decay(DELTANET_MAP(hn::Load(d, alphas + t * n + column + i * kLanes)));
    } else {
      const Vec alpha = hn::Set(d, alphas[t]);
      decay(DELTANET_MAP(alpha));
    }
    added = DELTANET_MAP(hn::MulAdd(hn::Mul(beta, k.v[i]), k.v[i], added.v[i]));
    A = DELTANET_MAP(hn::Add(before.v[i], added.v[i]));
  }

  HWY_INLINE void store() {
    const D d;
    const Vec all = hn::Set(d, alpha_is_row ? 0.0f : *total);
    for (int i = 0; i < kVecs; ++i) {
      const Vec decay = alpha_is_row ? hn::Load(d, total + column + i * kLanes) : all;
      hn::Store(hn::MulAdd(decay, hn::Load(d, state + i * kLanes), added.v[i]), d, state + i * kLanes);
    }
  }

 private:
  HWY_INLINE void decay(const Pack<kVecs>& alpha) {
    before = DELTANET_MAP(hn::Mul(alpha.v[i], before.v[i]));
    added = DELTANET_MAP(hn::Mul(alpha.v[i], added.v[i]));
  }
};

template <PrecondKind kKind, bool kKeep, int kVecs>
HWY_INLINE void scan_columns(const PrecondScan& p, const LogConstants& log_constants, int64_t column) {
  const D d;
  const Vec eps = hn::Set(d, p.eps), largest = hn::Set(d, std::numeric_limits<float>::max());
  const int64_t rows = p.rows, n = p.n;
  const float *x = p.x, *ridge = p.ridge;
  float *y = p.y, *A_previous = p.A_previous, *B_out = p.B, *slope = p.slope;
  Moment<kVecs> moment(p, column);
  for (int64_t t = 0; t < rows; ++t) {
    const int64_t at = t * n + column;
    const Pack<kVecs> k = DELTANET_MAP(hn::Load(d, p.k + at + i * kLanes));
    const Pack<kVecs> previous = moment.A;
    moment.add(t, k);
    const Pack<kVecs>& A = moment.A;
    if constexpr (kKeep) {
      for (int i = 0; i < kVecs; ++i) hn::Store(previous.v[i], d, A_previous + at + i * kLanes);
    }
    if constexpr (kKind == PrecondKind::kInverse || kKind == PrecondKind::kInversePrevious) {
      const Pack<kVecs>& met = kKind == PrecondKind::kInversePrevious ? previous : A;
      const Pack<kVecs> sum = DELTANET_MAP(hn::Add(met.v[i], hn::Load(d, ridge + column + i * kLanes)));
      // Of a sum that has overflowed, the inverse would be a healthy zero; infinity times zero is NaN.
      const Pack<kVecs> B = DELTANET_MAP(hn::MulAdd(sum.v[i], hn::Zero(d), hn::Div(hn::Set(d, 1.0f), sum.v[i])));
      for (int i = 0; i < kVecs; ++i) {
        const int64_t here = at + i * kLanes;
        hn::Store(hn::Mul(B.v[i], hn::Load(d, x + here)), d, y + here);
        if constexpr (kKeep) {
          hn::Store(B.v[i], d, B_out + here);
          hn::Store(hn::Neg(hn::Mul(B.v[i], B.v[i])), d, slope + here);
        }
      }
    } else {
      // Keys that are not normalized can overflow A; the logarithm of the largest float squashes as well as a larger
      // one.
      const Pack<kVecs> sum = DELTANET_MAP(hn::Add(A.v[i], eps));
      const Pack<kVecs> shifted = DELTANET_MAP(at_most(largest, sum.v[i]));
      const Pack<kVecs> r = centered_log2<kVecs>(log_constants, shifted);
      for (int i = 0; i < kVecs; ++i) {
        hn::Store(log_or_nan(sum.v[i], r.v[i]), d, y + at + i * kLanes);
      }
      if constexpr (kKeep) {
        const Pack<kVecs> inverse_A = Reciprocal<kVecs>(shifted).product();
        for (int i = 0; i < kVecs; ++i) hn::Store(inverse_A.v[i], d, slope + at + i * kLanes);
      }
    }
  }
  moment.store();
}

template <PrecondKind kKind, bool kKeep, int kTerms>
void scan(const PrecondScan& p) {
  const LogConstants log_constants(p.center);
  int64_t column = 0;
  for (; column + kTogether * kLanes <= p.n; column += kTogether * kLanes) {
    scan_columns<kKind, kKeep, kTogether>(p, log_constants, column);
  }
  for (; column < p.n; column += kLanes) scan_columns<kKind, kKeep, 1>(p, log_constants, column);
  if constexpr (kKind == PrecondKind::kStableFast || kKind == PrecondKind::kStableTanh) {
    squash_all<kKind, kKeep, kTerms>(p);
  }
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
  for (int64_t column = 0; column < p.n; column += kLanes) {
    Moment<1> moment(p, column);
    for (int64_t t = 0; t < p.rows; ++t) moment.add(t, {hn::Load(D(), p.k + t * p.n + column)});
    moment.store();
  }
}

#undef DELTANET_MAP

void precond_scan(const PrecondScan& p) {
  if (!p.y) return scan_moment(p);
  p.B ? scan_kind<true>(p) : scan_kind<false>(p);
}

}  // namespace

void fill_precond(Kernels& table) { table.precond_scan = precond_scan; }

}  // namespace HWY_NAMESPACE
}  // namespace deltanet::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltanet::simd {
HWY_EXPORT(fill_precond);
void add_precond(Kernels& table) { HWY_DYNAMIC_DISPATCH(fill_precond)(table); }
}  // namespace deltanet::simd
#endif
