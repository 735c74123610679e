#pragma once

#include "base/arena.h"
#include "recurrence/prepare.h"

// The preconditioners that carry a full K x K matrix: the exact inverse Gram of recursive least squares, and MesaNet's
// solve with the regularized Gram. Both end in operands of the ordinary core: RLS in a write key, MesaNet in a query.

namespace deltanet {

void symmetrize(int64_t n, float* matrix, int64_t ld);

class MatrixPrecond {
 public:
  MatrixPrecond(const Problem& problem, int64_t key_head, const float* ridge, Arena& arena);

  // w = P k / (1 + k.Pk), then P <- P - (P k)(P k)^T / (1 + k.Pk), token by token.
  void rls_forward(KeyState& state, KeyChunk& chunk);
  // Adds to grads.k; grads.dmatrix goes from the end of the chunk to its start.
  void rls_backward(const KeyChunk& chunk, KeyGrads& grads);

  // q <- (G_t + diag(ridge))^-1 q with G_t = alpha_t G_{t-1} + beta_t k_t k_t^T, by conjugate gradients for all tokens
  // of the chunk at once.
  void mesa_forward(KeyState& state, KeyChunk& chunk);
  // grads.q (of the solution) becomes the gradient of the right-hand side by a second solve; the rest follows from
  // d(solution) = -(G + ridge)^-1 dG solution.
  void mesa_backward(const KeyChunk& chunk, KeyGrads& grads, GateGrads& dgates, SharedGrads& shared);

 private:
  void load_gates(const Span& span);
  void solve(const KeyChunk& chunk, const float* G, float* x);  // in place
  void apply(const KeyChunk& chunk, const float* G, const float* x, float* y);

  const Problem& p_;
  const int64_t head_;
  const float* ridge_;
  float *residual_, *direction_, *image_, *temp_, *k_columns_;  // [kChunk][Kp] (the last [Kp][kChunk])
  float* matrix_temp_;                                          // [Kp][Kp] (at least kChunk rows)
  alignas(64) float gram_[kChunk * kChunk];
  alignas(64) float alpha_[kChunk];
  float beta_[kChunk];
  float gamma_[kChunk], to_end_[kChunk];  // decay from the start of the chunk, and to its end
  float total_;                           // over the chunk
  float between_[kChunk * kChunk];        // Gamma_ij, i >= j
};

}  // namespace deltanet
