#include <algorithm>

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

// The write key is the gain vector of recursive least squares (paper, Theorem 3.1). With P symmetric, every product is
// with rows of P.
void MatrixPrecond::rls_forward(KeyState& state, KeyChunk& c) {
  const int64_t Kp = p_.Kp;
  float* scaled = temp_;
  for (int64_t t = 0; t < c.span.fill; ++t) {
    const float* k = c.k + t * Kp;
    float* u = c.w + t * Kp;
    p_.simd.dot_rows(Kp, Kp, state.matrix, Kp, k, 0, u);
    float m;
    p_.simd.dot_rows(1, Kp, k, 0, u, 0, &m);
    const float factor = quotient(1.0f, 1.0f + m);
    add_outer(p_, -factor, u, u, state.matrix, scaled);
    p_.simd.scale_rows(1, Kp, &factor, u, 0, u, 0);
  }
}

// Per token, with u = P k, m = k.u, c = 1/(1+m), w = c u, P' = P - c u u^T and dP' the gradient of P':
//   du = c dw - c (dP' + dP'^T) u,   dc = dw.u - u.dP'u,   dm = -c^2 dc,
//   du += dm k,  dk += dm u + P du,  dP = dP' + du k^T.
// P before each token comes from running the chunk forward and undoing the rank-one updates one by one.
void MatrixPrecond::rls_backward(const KeyChunk& c, KeyGrads& g) {
  const int64_t Kp = p_.Kp;
  float* P = matrix_temp_;
  float *u_rows = residual_, *product = direction_, *product_t = direction_ + Kp, *du = image_, *scaled = temp_;
  float factor[kChunk];
  std::copy_n(c.start.matrix, Kp * Kp, P);
  for (int64_t t = 0; t < kChunk; ++t) {
    float* u = u_rows + t * Kp;
    p_.simd.dot_rows(Kp, Kp, P, Kp, c.k + t * Kp, 0, u);
    float m;
    p_.simd.dot_rows(1, Kp, c.k + t * Kp, 0, u, 0, &m);
    factor[t] = quotient(1.0f, 1.0f + m);
    add_outer(p_, -factor[t], u, u, P, scaled);
  }
  for (int64_t t = kChunk - 1; t >= 0; --t) {
    const float* k = c.k + t * Kp;
    const float* u = u_rows + t * Kp;
    const float* dw = g.w + t * Kp;
    add_outer(p_, factor[t], u, u, P, scaled);
    p_.simd.dot_rows(Kp, Kp, g.dmatrix, Kp, u, 0, product);
    std::fill_n(product_t, Kp, 0.0f);
    for (int64_t i = 0; i < Kp; ++i) p_.simd.add_scaled_rows(1, Kp, u + i, g.dmatrix + i * Kp, 0, product_t, 0);
    float dw_u, u_product;
    p_.simd.dot_rows(1, Kp, dw, 0, u, 0, &dw_u);
    p_.simd.dot_rows(1, Kp, product, 0, u, 0, &u_product);
    const float dm = -factor[t] * factor[t] * (dw_u - u_product);
    for (int64_t i = 0; i < Kp; ++i) du[i] = factor[t] * (dw[i] - product[i] - product_t[i]) + dm * k[i];
    p_.simd.dot_rows(Kp, Kp, P, Kp, du, 0, scaled);
    for (int64_t i = 0; i < Kp; ++i) g.k[t * Kp + i] += dm * u[i] + scaled[i];
    add_outer(p_, 1.0f, du, k, g.dmatrix, scaled);
  }
}

}  // namespace deltanet
