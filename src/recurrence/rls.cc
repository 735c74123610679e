#include <algorithm>
#include <cmath>

#include "recurrence/divisors.h"
#include "recurrence/matrix_precond.h"

namespace deltanet {

void symmetrize(int64_t n, float* matrix, int64_t ld) {
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      const float mean = 0.5f * (matrix[i * ld + j] + matrix[j * ld + i]);
      matrix[i * ld + j] = matrix[j * ld + i] = mean;
    }
  }
}

namespace {

// matrix += s x y^T.
void add_outer(const Problem& p, float s, const float* x, const float* y, float* matrix, float* scaled) {
  for (int64_t i = 0; i < p.Kp; ++i) scaled[i] = s * x[i];
  p.simd.add_scaled_rows(p.Kp, p.Kp, scaled, y, 0, matrix, p.Kp);
}

}  // namespace

// Recursive least squares with forgetting alpha and weight beta (paper, Theorem 3.1 for alpha = beta = 1):
//
//   P- = P/alpha,   u = P- k,   m = k.u,   n = 1 + beta m,   w = u/n,   P = P- - (beta/n) u u^T
//
// w is P_t k, the state is not decayed, because alpha cancels, and P is symmetric, so that every product is with its
// rows. Where no key excites it P grows as the inverse of all decays: a channel whose diagonal would exceed
// kLargestInverse begins again, with the row and column of the identity. What is left is positive definite, too.

// P <- P/alpha; into kept which channels have not begun again. If all are, P is left alone and the result is true.
bool MatrixPrecond::forget(float alpha, float* P, float* kept) const {
  const int64_t Kp = p_.Kp;
  const float inverse = quotient(1.0f, alpha);
  bool all = true;
  for (int64_t i = 0; i < Kp; ++i) {
    const float diagonal = P[i * Kp + i];  // 0 in the padding, where the inverse may be infinite
    kept[i] = diagonal != 0.0f && diagonal * inverse > static_cast<float>(kLargestInverse) ? 0.0f : 1.0f;
    all = all && kept[i] == 1.0f;
  }
  if (all) return alpha != 0.0f;
  for (int64_t i = 0; i < Kp; ++i) {
    for (int64_t j = 0; j < Kp; ++j) {
      float& entry = P[i * Kp + j];
      if (kept[i] * kept[j] != 1.0f) {
        entry = i == j ? 1.0f : 0.0f;
      } else if (entry != 0.0f) {
        entry *= inverse;
      }
    }
  }
  return false;
}

// One token: P on, u and the weights of the update; `inverse` is 1/alpha where all channels forget alike and P has not
// been multiplied by it.
MatrixPrecond::RlsWeights MatrixPrecond::rls_update(const float* k, float beta, float inverse, float* P, float* u) {
  const int64_t Kp = p_.Kp;
  p_.simd.dot_rows(Kp, Kp, P, Kp, k, 0, u);
  if (inverse != 1.0f) p_.simd.scale_rows(1, Kp, &inverse, u, 0, u, 0);
  float m;
  p_.simd.dot_rows(1, Kp, k, 0, u, 0, &m);
  const float write = quotient(1.0f, 1.0f + beta * m), update = beta * write;
  if (!forgets()) {
    add_outer(p_, -update, u, u, P, temp_);
    return {m, write, update};
  }
  // P must stay symmetric to the bit: what is not grows by 1/alpha in every token, and no key takes it back. So both
  // factors have the root of the weight, and an entry and its mirror image are products of the same two numbers.
  const float root = std::sqrt(std::fabs(update));
  float* right = temp_ + Kp;
  for (int64_t i = 0; i < Kp; ++i) {
    right[i] = root * u[i];
    temp_[i] = -std::copysign(root, update) * u[i];
  }
  if (inverse == 1.0f) {
    p_.simd.add_scaled_rows(Kp, Kp, temp_, right, 0, P, Kp);
  } else {
    float* inverses = temp_ + 2 * Kp;
    std::fill_n(inverses, Kp, inverse);
    p_.simd.gemm_cols(simd::Into::kRowScale, {Kp, Kp, 1, temp_, Kp, right, Kp, P, Kp, inverses});
  }
  return {m, write, update};
}

void MatrixPrecond::rls_forward(float* P, KeyChunk& c) {
  const int64_t Kp = p_.Kp;
  load_gates(c.span);
  for (int64_t t = 0; t < c.span.fill; ++t) {
    float* u = c.w + t * Kp;
    float inverse = 1.0f;
    if (alpha_[t] != 1.0f && forget(alpha_[t], P, residual_)) inverse = quotient(1.0f, alpha_[t]);
    const RlsWeights weights = rls_update(c.k + t * Kp, weight(t), inverse, P, u);
    p_.simd.scale_rows(1, Kp, &weights.write, u, 0, u, 0);
  }
}

// With b = 1/n, a = beta/n and dP the gradient of P:
//   du = b dw - a (dP + dP^T) u,   db = dw.u,   da = -u.dP u,   dn = -b^2 db - beta b^2 da,   dm = beta dn,
//   dbeta = b da + m dn,   du += dm k,   dk += dm u + P- du,   dP- = dP + du k^T,
// and of the channels that are kept dP = dP-/alpha, dlog alpha = -<dP-, P->.
// P- of each token comes from running the chunk forward and keeping it: the updates cannot be undone where a channel
// begins again.
void MatrixPrecond::rls_backward(const float* start, const KeyChunk& c, KeyGrads& g, GateGrads& dgates) {
  const int64_t Kp = p_.Kp;
  float* P = matrix_temp_;
  float* dP = g.state.matrix[at(Side::kKey)];
  float *u_rows = residual_, *product = direction_, *product_t = direction_ + Kp, *du = image_, *scaled = temp_;
  RlsWeights weights[kChunk];
  load_gates(c.span);
  std::copy_n(start, Kp * Kp, P);
  for (int64_t t = 0; t < kChunk; ++t) {
    if (forgets()) {
      float* kept = k_columns_ + t * Kp;
      if (alpha_[t] == 1.0f) {
        std::fill_n(kept, Kp, 1.0f);
      } else if (forget(alpha_[t], P, kept)) {
        scale(quotient(1.0f, alpha_[t]), P);
      }
      std::copy_n(P, Kp * Kp, history_ + t * Kp * Kp);
    }
    weights[t] = rls_update(c.k + t * Kp, weight(t), 1.0f, P, u_rows + t * Kp);
  }
  for (int64_t t = kChunk - 1; t >= 0; --t) {
    const float* k = c.k + t * Kp;
    const float* u = u_rows + t * Kp;
    const float* dw = g.w + t * Kp;
    const auto [m, write, update] = weights[t];
    if (forgets()) {
      P = history_ + t * Kp * Kp;
    } else {
      add_outer(p_, update, u, u, P, scaled);
    }
    p_.simd.dot_rows(Kp, Kp, dP, Kp, u, 0, product);
    std::fill_n(product_t, Kp, 0.0f);
    for (int64_t i = 0; i < Kp; ++i) p_.simd.add_scaled_rows(1, Kp, u + i, dP + i * Kp, 0, product_t, 0);
    float dw_u, u_product;
    p_.simd.dot_rows(1, Kp, dw, 0, u, 0, &dw_u);
    p_.simd.dot_rows(1, Kp, product, 0, u, 0, &u_product);
    const float dn = -write * write * (dw_u - weight(t) * u_product), dm = weight(t) * dn;
    if (p_.spec.gain == Gain::kBeta) dgates.beta[t] += m * dn - write * u_product;
    for (int64_t i = 0; i < Kp; ++i) du[i] = write * dw[i] - update * (product[i] + product_t[i]) + dm * k[i];
    p_.simd.dot_rows(Kp, Kp, P, Kp, du, 0, scaled);
    for (int64_t i = 0; i < Kp; ++i) g.k[t * Kp + i] += dm * u[i] + scaled[i];
    add_outer(p_, 1.0f, du, k, dP, scaled);
    if (forgets()) symmetrize(p_.K, dP, Kp);  // as P is: what is not would grow here, too
    if (forgets()) dgates.log_alpha[t] += forget_backward(alpha_[t], k_columns_ + t * Kp, P, dP);
  }
}

void MatrixPrecond::scale(float factor, float* P) const {
  for (int64_t i = 0; i < p_.Kp * p_.Kp; ++i) P[i] *= factor;
}

// From the gradient of P- to that of P; returns the gradient of log alpha.
float MatrixPrecond::forget_backward(float alpha, const float* kept, const float* P, float* dP) const {
  const int64_t Kp = p_.Kp;
  const float inverse = quotient(1.0f, alpha);
  double log_alpha = 0.0;
  for (int64_t i = 0; i < Kp; ++i) {
    for (int64_t j = 0; j < Kp; ++j) {
      float& entry = dP[i * Kp + j];
      if (kept[i] * kept[j] != 1.0f) {
        entry = 0.0f;
        continue;
      }
      log_alpha -= static_cast<double>(entry) * P[i * Kp + j];
      if (entry != 0.0f) entry *= inverse;
    }
  }
  return static_cast<float>(log_alpha);
}

}  // namespace deltanet
