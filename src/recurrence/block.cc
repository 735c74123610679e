#include <algorithm>
#include <cmath>

#include "recurrence/matrix_precond.h"

// The block-diagonal Gram, between the second moment (blocks of one channel) and the exact Gram (one block):
//
//   G_t = alpha_t G_{t-1} + beta_t k_t k_t^T inside the blocks,   y_t = (G_s + diag(ridge))^-1 x_t
//
// with s = t - 1 and x = k for the write key, as Sherman and Morrison have it, and s = t and x = q for the read query.
// With one block and the gain beta/(1 + m) the write key is that of recursive least squares, and the read query is
// MesaNet's.

namespace deltanet {
namespace {

// M <- its Cholesky factor L, in the lower half. A matrix that is not positive definite, or not finite, gives NaN.
void factorize(int64_t n, double* M) {
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = j; i < n; ++i) {
      double sum = M[i * n + j];
      for (int64_t c = 0; c < j; ++c) sum -= M[i * n + c] * M[j * n + c];
      M[i * n + j] = i == j ? std::sqrt(sum) : sum / M[j * n + j];
    }
  }
}

// x <- (L L^T)^-1 x.
void solve_factorized(int64_t n, const double* L, double* x) {
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t c = 0; c < i; ++c) x[i] -= L[i * n + c] * x[c];
    x[i] /= L[i * n + i];
  }
  for (int64_t i = n; i-- > 0;) {
    for (int64_t c = i + 1; c < n; ++c) x[i] -= L[c * n + i] * x[c];
    x[i] /= L[i * n + i];
  }
}

}  // namespace

void keep_blocks(const Problem& p, float* matrix) {
  for (int64_t i = 0; i < p.K; ++i) {
    const int64_t first = i / p.spec.block * p.spec.block, end = std::min(p.K, first + p.spec.block);
    std::fill(matrix + i * p.Kp, matrix + i * p.Kp + first, 0.0f);
    std::fill(matrix + i * p.Kp + end, matrix + (i + 1) * p.Kp, 0.0f);
  }
}

// x <- (G + ridge)^-1 x for the block of n channels from `first` on.
void MatrixPrecond::solve_block(const float* G, int64_t first, int64_t n, double* x) {
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j <= i; ++j) block_[i * n + j] = G[(first + i) * p_.Kp + first + j];
    block_[i * n + i] += ridge_[first + i];
  }
  factorize(n, block_);
  solve_factorized(n, block_, x);
}

// G <- alpha G + beta k k^T inside the block.
void MatrixPrecond::advance_block(float alpha, float beta, const float* k, int64_t first, int64_t n, float* G) const {
  for (int64_t i = first; i < first + n; ++i) {
    const float scaled = beta * k[i];
    for (int64_t j = first; j < first + n; ++j) G[i * p_.Kp + j] = alpha * G[i * p_.Kp + j] + scaled * k[j];
  }
}

void MatrixPrecond::block_forward(float* G, const KeyChunk& c, bool previous, const float* x, float* y) {
  const int64_t Kp = p_.Kp;
  for (int64_t first = 0; first < p_.K; first += p_.spec.block) {
    const int64_t n = std::min<int64_t>(p_.spec.block, p_.K - first);
    for (int64_t t = 0; t < c.span.fill; ++t) {
      const auto advance = [&] { advance_block(c.alpha_atk[t], c.beta_atk[t], c.k + t * Kp, first, n, G); };
      if (!previous) advance();
      if (x) {
        for (int64_t i = 0; i < n; ++i) solution_[i] = x[t * Kp + first + i];
        solve_block(G, first, n, solution_);
        for (int64_t i = 0; i < n; ++i) y[t * Kp + first + i] = static_cast<float>(solution_[i]);
      }
      if (previous) advance();
    }
  }
  if (x && Kp > p_.K) {
    for (int64_t t = 0; t < c.span.fill; ++t) std::fill(y + t * Kp + p_.K, y + (t + 1) * Kp, 0.0f);
  }
}

// With z = (G_s + ridge)^-1 dy: dx += z, dridge = -z*y, dG_s -= z y^T; the Gram's recursion takes its gradient E to
//   dk_t += beta_t (E + E^T) k_t,   dbeta_t = k_t.E k_t,   dlog alpha_t = alpha_t <E, G_{t-1}>,   E <- alpha_t E.
// G before each token comes from running the chunk forward.
void MatrixPrecond::block_backward(const float* start, const KeyChunk& c, bool previous, const float* y,
                                   const float* dy, float* dx, float* E, KeyGrads& g, SharedGrads& shared) {
  const int64_t Kp = p_.Kp, size = Kp * Kp;
  for (int64_t first = 0; first < p_.K; first += p_.spec.block) {
    const int64_t n = std::min<int64_t>(p_.spec.block, p_.K - first), end = first + n;
    std::copy_n(start + first * Kp, n * Kp, history_ + first * Kp);
    for (int64_t t = 0; t < kChunk; ++t) {
      float* next = history_ + (t + 1) * size;
      std::copy_n(history_ + t * size + first * Kp, n * Kp, next + first * Kp);
      advance_block(c.alpha_atk[t], c.beta_atk[t], c.k + t * Kp, first, n, next);
    }
    for (int64_t t = kChunk - 1; t >= 0; --t) {
      const float* before = history_ + t * size;
      const float *k = c.k + t * Kp, *solved = y + t * Kp;
      for (int64_t i = 0; i < n; ++i) solution_[i] = dy[t * Kp + first + i];
      solve_block(previous ? before : before + size, first, n, solution_);
      for (int64_t i = 0; i < n; ++i) {
        dx[t * Kp + first + i] += static_cast<float>(solution_[i]);
        shared.ridge[first + i] -= solution_[i] * solved[first + i];
      }
      const auto add_solve = [&] {
        for (int64_t i = first; i < end; ++i) {
          for (int64_t j = first; j < end; ++j) E[i * Kp + j] -= static_cast<float>(solution_[i - first] * solved[j]);
        }
      };
      if (!previous) add_solve();
      const float alpha = c.alpha_atk[t], beta = c.beta_atk[t];
      double dbeta = 0.0, dlog_alpha = 0.0;
      for (int64_t i = first; i < end; ++i) {
        double along = 0.0, both = 0.0;
        for (int64_t j = first; j < end; ++j) {
          along += static_cast<double>(E[i * Kp + j]) * k[j];
          both += (static_cast<double>(E[i * Kp + j]) + E[j * Kp + i]) * k[j];
          dlog_alpha += static_cast<double>(E[i * Kp + j]) * before[i * Kp + j];
        }
        dbeta += along * k[i];
        g.k[t * Kp + i] += static_cast<float>(beta * both);
      }
      for (int64_t i = first; i < end; ++i) {
        for (int64_t j = first; j < end; ++j) E[i * Kp + j] *= alpha;
      }
      g.beta_atk[t] += static_cast<float>(dbeta);
      g.log_alpha_atk[t] += static_cast<float>(alpha * dlog_alpha);
      if (previous) add_solve();
    }
  }
}

}  // namespace deltanet
