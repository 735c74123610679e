#include <algorithm>
#include <cmath>
#include <limits>

#include "recurrence/decay.h"
#include "recurrence/matrix_precond.h"

// MesaNet's query: q* = (G_t + diag(ridge))^-1 q, G_t = alpha_t G_{t-1} + beta_t k_t k_t^T.
//
// With gamma_t the decay since the start of the chunk, Gamma_tj that from token j to t, and G the Gram at the start,
//   G_t x = gamma_t G x + sum_{j<=t} Gamma_tj beta_j k_j (k_j.x),
// so one step of conjugate gradients for all tokens of the chunk is three small matrix products.

namespace deltanet {
namespace {

// The recursion for the residual drifts from the true residual in float32, so the solve is a few rounds of iterative
// refinement: each round computes the true residual and reduces it by kRoundReduction.
constexpr int kRounds = 3;
constexpr float kRoundReduction = 1e-4f;
constexpr float kTolerance = 1e-7f;  // relative size of the true residual at which a token is done

// The power of two that brings the largest of n values to [1, 2), as far as there is one in float32. The squares of
// tiny right-hand sides, which gradients can be, would vanish, and those of huge ones overflow.
float unit_factor(const float* values, int64_t n) {
  float largest = 0.0f;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(values[i]));
  if (largest == 0.0f || !std::isfinite(largest)) return 1.0f;
  return std::ldexp(1.0f, std::min(-std::ilogb(largest), 126));
}

}  // namespace

MatrixPrecond::MatrixPrecond(const Problem& problem, int64_t key_head, const float* ridge, bool record, Arena& arena)
    : p_(problem), head_(key_head), ridge_(ridge) {
  const int64_t rows = kChunk * p_.Kp;
  residual_ = arena.take(rows);
  direction_ = arena.take(rows);
  image_ = arena.take(rows);
  temp_ = arena.take(rows);
  k_columns_ = arena.take(rows);
  matrix_temp_ = arena.take(p_.Kp * p_.Kp);
  const bool blocks = does(p_.spec, Operation::kBlock), forgetful = p_.key.operation == Operation::kRls && forgets();
  if (record && (blocks || forgetful)) history_ = arena.take((kChunk + 1) * p_.Kp * p_.Kp);
  if (!blocks) return;
  const int64_t n = std::min<int64_t>(p_.spec.block, p_.K);
  block_ = reinterpret_cast<double*>(arena.take(2 * n * n));
  solution_ = reinterpret_cast<double*>(arena.take(2 * n));
}

void MatrixPrecond::load_gates(const Span& span) {
  std::fill_n(beta_, kChunk, 1.0f);  // missing tokens have zero keys and add nothing
  if (p_.in.beta) load_scalars(p_.in.beta, span, head_, 0.0f, beta_);
  std::fill_n(alpha_, kChunk, 0.0f);
  if (p_.spec.decay == Decay::kScalar) {
    load_scalars(p_.in.g, span, head_, 0.0f, alpha_);
  } else if (p_.spec.decay == Decay::kConst) {
    std::fill_n(alpha_, span.tokens, p_.in.g.data[head_ * p_.in.g.stride[0]]);
  }
  total_ = chunk_decay(alpha_);
  p_.simd.exp_rows(kChunk, alpha_, alpha_);
}

// y = (G_t + ridge) x for every token t.
void MatrixPrecond::apply(const KeyChunk& c, const float* G, const float* x, float* y) {
  const int64_t Kp = p_.Kp;
  p_.simd.gemm_rows(simd::Into::kSet, {kChunk, Kp, Kp, x, Kp, G, Kp, y, Kp});
  p_.simd.scale_rows(kChunk, Kp, gamma_, y, Kp, y, Kp);
  p_.simd.gemm_rows(simd::Into::kSet, {kChunk, kChunk, Kp, x, Kp, k_columns_, kChunk, gram_, kChunk});
  for (int64_t i = 0; i < kChunk; ++i) {
    for (int64_t j = 0; j <= i; ++j) gram_[i * kChunk + j] *= between_[i * kChunk + j] * beta_[j];
  }
  p_.simd.add_lower(gram_, kChunk, Kp, c.k, Kp, y, Kp);
  for (int64_t i = 0; i < kChunk; ++i) p_.simd.add_mul_rows(1, Kp, ridge_, x + i * Kp, y + i * Kp);
}

// x <- (G_t + ridge)^-1 x. A token that has converged is frozen by steps of zero, so that its result does not depend on
// the other tokens of the chunk.
void MatrixPrecond::solve(const KeyChunk& c, const float* G, float* x) {
  const int64_t Kp = p_.Kp, rows = kChunk * Kp;
  float* rhs = matrix_temp_;  // free here: the products need kChunk rows of it at most
  std::copy_n(x, rows, rhs);
  std::fill_n(x, rows, 0.0f);
  p_.simd.transpose(kChunk, Kp, c.k, Kp, k_columns_, kChunk);
  float norm[kChunk], squares[kChunk], next[kChunk], curvature[kChunk], step[kChunk], goal[kChunk], one[kChunk];
  float factor[kChunk];
  std::fill_n(one, kChunk, 1.0f);
  for (int64_t i = 0; i < kChunk; ++i) factor[i] = unit_factor(rhs + i * Kp, Kp);
  p_.simd.scale_rows(kChunk, Kp, factor, rhs, Kp, rhs, Kp);
  p_.simd.dot_rows(kChunk, Kp, rhs, Kp, rhs, Kp, norm);
  for (int round = 0; round < kRounds; ++round) {
    std::copy_n(rhs, rows, residual_);
    if (round > 0) {
      apply(c, G, x, image_);
      for (int64_t i = 0; i < rows; ++i) residual_[i] -= image_[i];
    }
    std::copy_n(residual_, rows, direction_);
    p_.simd.dot_rows(kChunk, Kp, residual_, Kp, residual_, Kp, squares);
    bool active = false;
    for (int64_t i = 0; i < kChunk; ++i) {
      const bool done = squares[i] <= kTolerance * kTolerance * norm[i];
      goal[i] = done ? squares[i] : kRoundReduction * kRoundReduction * squares[i];
      active |= !done;
    }
    for (int64_t iteration = 0; active && iteration < 2 * p_.K + 8; ++iteration) {
      apply(c, G, direction_, image_);
      p_.simd.dot_rows(kChunk, Kp, direction_, Kp, image_, Kp, curvature);
      for (int64_t i = 0; i < kChunk; ++i) step[i] = squares[i] > goal[i] ? squares[i] / curvature[i] : 0.0f;
      p_.simd.add_scaled_rows(kChunk, Kp, step, direction_, Kp, x, Kp);
      for (int64_t i = 0; i < kChunk; ++i) step[i] = -step[i];
      p_.simd.add_scaled_rows(kChunk, Kp, step, image_, Kp, residual_, Kp);
      p_.simd.dot_rows(kChunk, Kp, residual_, Kp, residual_, Kp, next);
      active = false;
      for (int64_t i = 0; i < kChunk; ++i) {
        const bool moving = squares[i] > goal[i];
        step[i] = moving ? next[i] / squares[i] : 1.0f;
        if (moving) squares[i] = next[i];
        active |= squares[i] > goal[i];
      }
      p_.simd.scale_rows(kChunk, Kp, step, direction_, Kp, direction_, Kp);
      p_.simd.add_scaled_rows(kChunk, Kp, one, residual_, Kp, direction_, Kp);
    }
  }
  // A right-hand side that is not finite has not moved its solution from zero.
  for (int64_t i = 0; i < kChunk; ++i) {
    factor[i] = std::isfinite(norm[i]) ? 1.0f / factor[i] : std::numeric_limits<float>::quiet_NaN();
  }
  p_.simd.scale_rows(kChunk, Kp, factor, x, Kp, x, Kp);
}

void MatrixPrecond::mesa_forward(float* G, KeyChunk& c) {
  const int64_t Kp = p_.Kp;
  load_gates(c.span);
  decay_products(alpha_, gamma_, to_end_, between_);
  if (c.q) solve(c, G, c.q);
  // G <- gamma_end G + sum_j Gamma_end,j beta_j k_j k_j^T.
  float weight[kChunk], gamma_end[kChunk];
  for (int64_t i = 0; i < kChunk; ++i) weight[i] = to_end_[i] * beta_[i];
  p_.simd.scale_rows(kChunk, Kp, weight, c.k, Kp, temp_, Kp);
  std::fill_n(gamma_end, kChunk, total_);
  for (int64_t row = 0; row < Kp; row += kChunk) {
    p_.simd.gemm_cols(simd::Into::kRowScale,
                      {kChunk, Kp, kChunk, temp_ + row, Kp, c.k, Kp, G + row * Kp, Kp, gamma_end});
  }
}

// Let y = (G_t + ridge)^-1 dq*. Then dq = y, dridge = -y*q*, and the Gram receives dG_t = -y_t q*_t^T. With E the
// gradient of the Gram at the end of the chunk, the Gram's recursion gives
//   dk_j     += Gamma_end,j beta_j (E + E^T) k_j - sum_{t>=j} Gamma_tj beta_j [ (q*_t.k_j) y_t + (y_t.k_j) q*_t ]
//   dbeta_j  += Gamma_end,j k_j.E k_j            - sum_{t>=j} Gamma_tj (y_t.k_j)(q*_t.k_j)
//   E        <- gamma_end E - sum_t gamma_t y_t q*_t^T
// and each product of decays its value times gradient.
void MatrixPrecond::mesa_backward(const float* G, const KeyChunk& c, KeyGrads& g, GateGrads& dgates,
                                  SharedGrads& shared) {
  const int64_t Kp = p_.Kp;
  float* dG = g.state.matrix[at(Side::kQuery)];
  load_gates(c.span);
  decay_products(alpha_, gamma_, to_end_, between_);
  solve(c, G, g.q);
  const float *y = g.q, *solution = c.q;
  for (int64_t t = 0; t < kChunk; ++t) {
    for (int64_t i = 0; i < p_.K; ++i) shared.ridge[i] -= static_cast<double>(y[t * Kp + i]) * solution[t * Kp + i];
  }

  LogDecayGrad decay;
  float value[kChunk], weight[kChunk];
  // Through the Gram at the end, which is symmetric: of its gradient only the symmetric part counts.
  float* E = matrix_temp_;
  std::copy_n(dG, Kp * Kp, E);
  symmetrize(p_.K, E, Kp);
  p_.simd.gemm_rows(simd::Into::kSet, {kChunk, Kp, Kp, c.k, Kp, E, Kp, image_, Kp});
  p_.simd.dot_rows(kChunk, Kp, c.k, Kp, image_, Kp, value);
  for (int64_t j = 0; j < kChunk; ++j) {
    weight[j] = 2.0f * to_end_[j] * beta_[j];
    dgates.beta[j] += to_end_[j] * value[j];
    decay.add(j + 1, kChunk - 1, static_cast<double>(to_end_[j]) * beta_[j] * value[j]);
  }
  p_.simd.add_scaled_rows(kChunk, Kp, weight, image_, Kp, g.k, Kp);
  double overlap = 0.0;
  for (int64_t row = 0; row < Kp; row += kChunk) {
    p_.simd.dot_rows(kChunk, Kp, G + row * Kp, Kp, E + row * Kp, Kp, value);
    for (int64_t i = 0; i < kChunk; ++i) overlap += value[i];
  }
  decay.add(0, kChunk - 1, total_ * overlap);

  // Through the Gram of each token: the part from the start of the chunk ...
  p_.simd.gemm_rows(simd::Into::kSet, {kChunk, Kp, Kp, solution, Kp, G, Kp, image_, Kp});
  p_.simd.dot_rows(kChunk, Kp, y, Kp, image_, Kp, value);
  for (int64_t t = 0; t < kChunk; ++t) decay.add(0, t, -static_cast<double>(gamma_[t]) * value[t]);
  // ... and the part from the keys inside it.
  alignas(64) float y_k[kChunk * kChunk], s_k[kChunk * kChunk];
  p_.simd.transpose(kChunk, Kp, c.k, Kp, k_columns_, kChunk);
  p_.simd.gemm_rows(simd::Into::kSet, {kChunk, kChunk, Kp, y, Kp, k_columns_, kChunk, y_k, kChunk});
  p_.simd.gemm_rows(simd::Into::kSet, {kChunk, kChunk, Kp, solution, Kp, k_columns_, kChunk, s_k, kChunk});
  for (int64_t t = 0; t < kChunk; ++t) {
    for (int64_t j = 0; j <= t; ++j) {
      const int64_t at = t * kChunk + j;
      const double product = -static_cast<double>(between_[at]) * y_k[at] * s_k[at];
      dgates.beta[j] += static_cast<float>(product);
      decay.add(j + 1, t, product * beta_[j]);
      y_k[at] *= -between_[at] * beta_[j];
      s_k[at] *= -between_[at] * beta_[j];
    }
  }
  p_.simd.add_upper(s_k, kChunk, Kp, y, Kp, g.k, Kp);
  p_.simd.add_upper(y_k, kChunk, Kp, solution, Kp, g.k, Kp);
  float log_alpha[kChunk];
  decay.finish(log_alpha);
  for (int64_t i = 0; i < kChunk; ++i) dgates.log_alpha[i] += log_alpha[i];

  float gamma_end[kChunk];
  std::fill_n(gamma_end, kChunk, total_);
  for (int64_t t = 0; t < kChunk; ++t) weight[t] = -gamma_[t];
  p_.simd.scale_rows(kChunk, Kp, weight, y, Kp, temp_, Kp);
  for (int64_t row = 0; row < Kp; row += kChunk) {
    p_.simd.gemm_cols(simd::Into::kRowScale,
                      {kChunk, Kp, kChunk, temp_ + row, Kp, solution, Kp, dG + row * Kp, Kp, gamma_end});
  }
}

}  // namespace deltanet
