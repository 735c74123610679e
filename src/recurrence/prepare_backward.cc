#include <algorithm>
#include <cmath>

#include "recurrence/gains.h"
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
  std::fill_n(g.beta_atk, kChunk, 0.0f);
  std::fill_n(g.log_alpha_atk, kChunk, 0.0f);
}

void Prepare::gates_backward(const KeyChunk& c, const Gates& gates, GateGrads& dg, KeyGrads& grads) const {
  const bool own_gain = p_.spec.erase == Erase::kOwnGain;
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
    const double dgain = own_gain ? dg.gain[i] : static_cast<double>(dg.gain[i]) + dg.erase[i];
    const float m = reads_m(p_.spec.gain) ? c.m[i] : 0.0f;
    const GainSlope slope = gain_slope(p_.spec.gain, gates.alpha[i], gates.beta[i], m, gates.gain[i]);
    dg.beta[i] = static_cast<float>(dgain * slope.beta);
    dg.log_alpha[i] += static_cast<float>(dgain * slope.log_alpha);
    grads.m[i] += static_cast<float>(dgain * slope.m);
  }
  if (!p_.decays) std::fill_n(dg.log_alpha, kChunk, 0.0f);  // RLS forgets in P alone, and adds that later
}

void Prepare::backward(KeyChunk& c, KeyGrads& g, GateGrads& tied, SharedGrads& shared, const InputGradients& out) {
  const int64_t Kp = p_.Kp;
  read_query_backward(c, g, tied, shared);
  if (p_.spec.solve == Solve::kDplr) {
    low_rank_factors_backward(c, g, out);
  } else {
    write_key_backward(c, g, tied, shared);
    if (out.k_write) store_tokens(g.w, Kp, c.span, head_, p_.K, out.k_write);
    if (out.k_erase) store_tokens(g.e, Kp, c.span, head_, p_.K, out.k_erase);
  }
  if (p_.spec.tie_gates) {
    for (int64_t i = 0; i < c.span.tokens; ++i) {
      tied.beta[i] += g.beta_atk[i];
      if (!c.alpha_atk_rows) tied.log_alpha[i] += g.log_alpha_atk[i];
    }
  } else {
    if (out.beta_atk) store_scalars(g.beta_atk, c.span, head_, out.beta_atk);
    if (out.g_atk) store_scalars(g.log_alpha_atk, c.span, head_, out.g_atk);
  }

  float factor[kChunk];
  std::fill_n(factor, kChunk, p_.scale);
  p_.simd.scale_rows(kChunk, Kp, factor, g.q, Kp, g.q, Kp);
  if (p_.query.operation == Operation::kMinusKey) {
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

void Prepare::read_query_backward(KeyChunk& c, KeyGrads& g, GateGrads& tied, SharedGrads& shared) {
  const int64_t rows = kChunk * p_.Kp;
  if (p_.query.operation == Operation::kMesa) {
    matrix_[at(Side::kQuery)]->mesa_backward(c.start.matrix[at(Side::kQuery)], c, g, tied, shared);
  }
  if (p_.query.operation == Operation::kBlock) {
    std::copy_n(g.q, rows, temp_);
    std::fill_n(g.q, rows, 0.0f);
    matrix_[at(Side::kQuery)]->block_backward(c.start.matrix[at(Side::kQuery)], c, /*previous=*/false, c.q, temp_, g.q,
                                              g.state.matrix[at(Side::kQuery)], g, shared);
  }
  if (p_.query.operation != Operation::kDiagonal) return;
  std::copy_n(g.q, rows, temp_);
  std::fill_n(g.q, rows, 0.0f);
  scan_backward(Side::kQuery, c, c.q_plain, temp_, g.q, g, tied, shared);
}

void Prepare::write_key_backward(KeyChunk& c, KeyGrads& g, GateGrads& tied, SharedGrads& shared) {
  const int64_t Kp = p_.Kp;
  if (reads_m(p_.spec.gain)) {
    // m = k . w. Where w is k itself both halves go to k.
    p_.simd.add_scaled_rows(kChunk, Kp, g.m, c.w, Kp, g.k, Kp);
    p_.simd.add_scaled_rows(kChunk, Kp, g.m, c.k, Kp, g.w, Kp);
  }
  switch (p_.key.operation) {
    case Operation::kCopy: {
      float one[kChunk];
      std::fill_n(one, kChunk, 1.0f);
      p_.simd.add_scaled_rows(kChunk, Kp, one, g.w, Kp, g.k, Kp);
      break;
    }
    case Operation::kDiagonal:
      scan_backward(Side::kKey, c, c.k, g.w, g.k, g, tied, shared);
      break;
    case Operation::kBlock:
      matrix_[at(Side::kKey)]->block_backward(c.start.matrix[at(Side::kKey)], c, /*previous=*/true, c.w, g.w, g.k,
                                              g.state.matrix[at(Side::kKey)], g, shared);
      break;
    case Operation::kRls:
      matrix_[at(Side::kKey)]->rls_backward(c.start.matrix[at(Side::kKey)], c, g, tied);
      break;
    default:  // k itself, or an input of its own
      break;
  }
}

void Prepare::scan_backward(Side side, const KeyChunk& c, const float* x, const float* dy, float* dx, KeyGrads& g,
                            GateGrads& tied, SharedGrads& shared) {
  float dcenter = 0.0f;
  float dbeta[kChunk], dlog_alpha[kChunk];
  if (ridge_) std::fill_n(dridge_, p_.Kp, 0.0f);
  simd::PrecondScanGrad scan{};
  scan.kind = p_.scan_kind(side);
  scan.rows = kChunk;
  scan.n = p_.Kp;
  scan.k = c.k;
  scan.x = x;
  scan.alpha = c.alpha_atk_rows ? c.alpha_atk_rows : c.alpha_atk;
  scan.alpha_is_row = c.alpha_atk_rows != nullptr;
  scan.beta = c.beta_atk;
  scan.eps = static_cast<float>(p_.spec.eps);
  scan.A_previous = c.scan[at(side)].A_previous;
  scan.B = c.scan[at(side)].B;
  scan.slope = c.scan[at(side)].slope;
  scan.dy = dy;
  scan.dA = g.state.A[at(side)];
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
  for (int64_t i = 0; i < c.span.tokens; ++i) {
    g.beta_atk[i] += dbeta[i];
    if (!c.alpha_atk_rows) g.log_alpha_atk[i] += dlog_alpha[i];
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
