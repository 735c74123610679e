#include <algorithm>
#include <cmath>

#include "recurrence/divisors.h"
#include "recurrence/matrix_precond.h"
#include "recurrence/prepare.h"

namespace deltanet {

void Prepare::clear(KeyGrads& g) const {
  const int64_t rows = kChunk * p_.Kp;
  std::fill_n(g.q, rows, 0.0f);
  std::fill_n(g.k, rows, 0.0f);
  if (g.e != g.k) std::fill_n(g.e, rows, 0.0f);
  if (g.w != g.k) std::fill_n(g.w, rows, 0.0f);
  std::fill_n(g.m, kChunk, 0.0f);
  std::fill_n(g.kk, kChunk, 0.0f);
}

void Prepare::gates_backward(const KeyChunk& c, const Gates& gates, GateGrads& dg, KeyGrads& grads) const {
  const bool comba = p_.spec.gain == Gain::kComba;
  const bool dplr = p_.spec.solve == Solve::kDplr;
  if (gates.e_rows) {
    // e = erase * decay * key: first the decay, then the two others.
    const int64_t Kp = p_.Kp;
    if (p_.erases_decayed) {
      p_.simd.add_mul_rows(kChunk, Kp, dg.e_rows, gates.e_rows, dg.log_alpha_rows);
      p_.simd.mul_rows(kChunk, Kp, gates.alpha_rows, dg.e_rows, dg.e_rows);
    }
    p_.simd.dot_rows(kChunk, Kp, dg.e_rows, Kp, c.e, Kp, dg.erase);
    p_.simd.add_scaled_rows(kChunk, Kp, gates.erase, dg.e_rows, Kp, grads.e, Kp);
  } else if (p_.erases_decayed) {
    for (int64_t i = 0; i < c.span.tokens; ++i) {
      dg.log_alpha[i] += dg.erase[i] * gates.erase[i];
      dg.erase[i] *= gates.alpha[i];
    }
  }
  for (int64_t i = 0; p_.diagonal && p_.spec.decay != Decay::kDiag && i < kChunk; ++i) {
    double sum = 0.0;
    for (int64_t j = 0; j < p_.K; ++j) sum += dg.log_alpha_rows[i * p_.Kp + j];
    dg.log_alpha[i] = static_cast<float>(sum);
  }
  for (int64_t i = 0; i < c.span.tokens; ++i) {
    dg.beta[i] = 0.0f;
    dg.beta_erase[i] = dg.erase[i];
    if (dplr) continue;
    const double de = comba ? dg.gain[i] : static_cast<double>(dg.gain[i]) + dg.erase[i];
    const double e = gates.gain[i], beta = gates.beta[i];
    double dbeta = 0.0;
    switch (p_.spec.gain) {
      case Gain::kOne:
        break;
      case Gain::kBeta:
      case Gain::kComba:
        dbeta = de;
        break;
      case Gain::kLonghorn: {
        const double denominator = 1.0 + beta * c.m[i];
        dbeta = quotient(de, denominator * denominator);
        grads.m[i] -= static_cast<float>(de * e * e);
        break;
      }
      case Gain::kNlms:
        grads.kk[i] -= static_cast<float>(de * e * e);
        break;
      case Gain::kEfla: {
        const double kk = c.kk[i];
        const double rest = std::exp(-beta * kk);
        dbeta = de * rest;
        // (beta exp(-beta kk) - e)/kk loses all digits for small keys; its series there is -beta^2/2 + beta^3 kk/3.
        const double slope = std::fabs(kk * beta) < 1e-4 ? beta * beta * (-0.5 + beta * kk / 3.0)
                                                         : (beta * rest + std::expm1(-beta * kk) / kk) / kk;
        if (!vanishes(kk)) grads.kk[i] += static_cast<float>(de * slope);
        break;
      }
    }
    if (p_.spec.norm == Norm::kAlphaBeta) {
      const double alpha = gates.alpha[i];
      const double denominator = alpha + beta * c.m[i];
      if (!vanishes(denominator)) {
        dbeta = quotient(de * alpha, denominator * denominator);
        dg.log_alpha[i] -= static_cast<float>(de * e * alpha / denominator);
        grads.m[i] -= static_cast<float>(de * e * e);
      }
    }
    dg.beta[i] = static_cast<float>(dbeta);
  }
}

void Prepare::backward(KeyChunk& c, KeyGrads& g, GateGrads& tied, SharedGrads& shared, const InputGradients& out) {
  const int64_t Kp = p_.Kp;
  if (p_.spec.solve == Solve::kDplr) {
    low_rank_factors_backward(c, g, out);
  } else {
    write_key_backward(c, g, tied, shared, out);
  }

  float factor[kChunk];
  const Gain gain = p_.spec.gain;
  if (gain == Gain::kLonghorn || gain == Gain::kNlms || gain == Gain::kEfla) {
    for (int64_t i = 0; i < kChunk; ++i) factor[i] = 2.0f * g.kk[i];
    p_.simd.add_scaled_rows(kChunk, Kp, factor, c.k, Kp, g.k, Kp);
  }
  std::fill_n(factor, kChunk, p_.scale);
  p_.simd.scale_rows(kChunk, Kp, factor, g.q, Kp, g.q, Kp);
  if (gain == Gain::kComba) {
    float along[kChunk];
    p_.simd.dot_rows(kChunk, Kp, g.q, Kp, c.k, Kp, along);
    for (int64_t i = 0; i < c.span.tokens; ++i) shared.d -= along[i];
    std::fill_n(factor, kChunk, -p_.in.d.data[head_ * p_.in.d.stride[0]]);
    p_.simd.add_scaled_rows(kChunk, Kp, factor, g.q, Kp, g.k, Kp);
  }
  if (p_.spec.l2norm) {
    p_.simd.l2norm_rows_grad(kChunk, Kp, c.q_normal, c.q_inverse_norm, g.q);
    p_.simd.l2norm_rows_grad(kChunk, Kp, c.k, c.k_inverse_norm, g.k);
  }
  if (out.q) store_tokens(g.q, Kp, c.span, head_, p_.K, out.q);
  if (out.k) store_tokens(g.k, Kp, c.span, head_, p_.K, out.k);
}

void Prepare::write_key_backward(KeyChunk& c, KeyGrads& g, GateGrads& tied, SharedGrads& shared,
                                 const InputGradients& out) {
  const int64_t Kp = p_.Kp;
  if (p_.spec.precond == Precond::kMesa) matrix_->mesa_backward(c, g, tied, shared);
  if (p_.spec.precond == Precond::kRls) matrix_->rls_backward(c, g);
  if (p_.spec.precond == Precond::kAtq) {
    std::copy_n(g.q, kChunk * Kp, temp_);
    std::fill_n(g.q, kChunk * Kp, 0.0f);
    scan_backward(c, temp_, g.q, g, tied, shared, out);
  }
  if (key_norm()) {
    // w = f(m) Pk: the gradient of the factor goes to m, the rest to Pk.
    float along[kChunk];
    p_.simd.dot_rows(kChunk, Kp, g.w, Kp, c.Pk, Kp, along);
    for (int64_t i = 0; i < kChunk; ++i) g.m[i] -= along[i] * c.key_factor[i] * c.key_factor[i];
    p_.simd.scale_rows(kChunk, Kp, c.key_factor, g.w, Kp, g.w, Kp);
  }
  if (key_norm() || p_.spec.norm == Norm::kAlphaBeta || p_.spec.gain == Gain::kLonghorn) {
    // m = k . Pk. Where Pk is k itself both halves go to k.
    p_.simd.add_scaled_rows(kChunk, Kp, g.m, c.Pk, Kp, g.k, Kp);
    p_.simd.add_scaled_rows(kChunk, Kp, g.m, c.k, Kp, g.w, Kp);
  }
  if (p_.spec.precond == Precond::kIdentity) {
    float one[kChunk];
    std::fill_n(one, kChunk, 1.0f);
    p_.simd.add_scaled_rows(kChunk, Kp, one, g.w, Kp, g.k, Kp);
  }
  if (p_.key_side()) scan_backward(c, g.w, g.k, g, tied, shared, out);
  if (out.k_write) store_tokens(g.w, Kp, c.span, head_, p_.K, out.k_write);
  if (out.k_erase) store_tokens(g.e, Kp, c.span, head_, p_.K, out.k_erase);
}

void Prepare::scan_backward(const KeyChunk& c, const float* dy, float* dx, KeyGrads& g, GateGrads& tied,
                            SharedGrads& shared, const InputGradients& out) {
  float dcenter = 0.0f;
  float dbeta[kChunk], dlog_alpha[kChunk];
  if (ridge_) std::fill_n(dridge_, p_.Kp, 0.0f);
  simd::PrecondScanGrad scan{};
  scan.kind = p_.scan_kind();
  scan.rows = kChunk;
  scan.n = p_.Kp;
  scan.k = c.k;
  scan.x = p_.spec.precond == Precond::kAtq ? c.q_plain : c.k;
  scan.alpha = c.alpha_atk_rows ? c.alpha_atk_rows : c.alpha_atk;
  scan.alpha_is_row = c.alpha_atk_rows != nullptr;
  scan.beta = c.beta_atk;
  scan.eps = static_cast<float>(p_.spec.eps);
  scan.A_previous = c.A_previous;
  scan.B = c.B;
  scan.slope = c.slope;
  scan.dy = dy;
  scan.dA = g.dA;
  scan.dk = g.k;
  scan.dx = dx;
  scan.dalpha_log = c.alpha_atk_rows ? tied.log_alpha_rows : dlog_alpha;
  scan.dbeta = dbeta;
  scan.dridge = dridge_;
  scan.dcenter = &dcenter;
  p_.simd.precond_scan_grad(scan);

  shared.center += dcenter;
  if (ridge_) {
    for (int64_t i = 0; i < p_.K; ++i) shared.ridge[i] += dridge_[i];
  }
  if (p_.spec.tie_gates) {
    for (int64_t i = 0; i < c.span.tokens; ++i) {
      tied.beta[i] += dbeta[i];
      if (!c.alpha_atk_rows) tied.log_alpha[i] += dlog_alpha[i];
    }
  } else {
    if (out.beta_atk) store_scalars(dbeta, c.span, head_, out.beta_atk);
    if (out.g_atk) store_scalars(dlog_alpha, c.span, head_, out.g_atk);
  }
}

void Prepare::low_rank_factors_backward(const KeyChunk& c, KeyGrads& g, const InputGradients& out) {
  const int64_t Kp = p_.Kp;
  float one[kChunk];
  std::fill_n(one, kChunk, 1.0f);
  float* db = g.w;
  switch (p_.spec.tying) {
    case Tying::kGeneral:
      if (out.b) store_tokens(db, Kp, c.span, head_, p_.K, out.b);
      break;
    case Tying::kAEqB:
      p_.simd.add_scaled_rows(kChunk, Kp, one, db, Kp, g.e, Kp);
      break;
    case Tying::kBEqK:  // db is the gradient of k
      break;
    case Tying::kRwkv7:
      p_.simd.add_mul_rows(kChunk, Kp, c.eta, db, g.e);
      if (out.eta) {
        p_.simd.mul_rows(kChunk, Kp, c.e, db, temp_);
        store_tokens(temp_, Kp, c.span, head_, p_.K, out.eta);
      }
      break;
  }
  const Tensor& target = p_.spec.tying == Tying::kRwkv7 ? out.kk : out.a;
  if (target) store_tokens(g.e, Kp, c.span, head_, p_.K, target);
}

void Prepare::store_gates(const Span& span, int64_t value_head, const GateGrads& dg, SharedGrads& shared,
                          const InputGradients& out) const {
  if (out.beta) store_scalars(dg.beta, span, value_head, out.beta);
  if (out.beta_erase) store_scalars(dg.beta_erase, span, value_head, out.beta_erase);
  switch (p_.spec.decay) {
    case Decay::kNone:
      break;
    case Decay::kConst:
      for (int64_t i = 0; i < span.tokens; ++i) shared.g[value_head % p_.group] += dg.log_alpha[i];
      break;
    case Decay::kScalar:
      if (out.g) store_scalars(dg.log_alpha, span, value_head, out.g);
      break;
    case Decay::kDiag:
      if (out.g) store_tokens(dg.log_alpha_rows, p_.Kp, span, value_head, p_.K, out.g);
      break;
  }
}

}  // namespace deltanet
