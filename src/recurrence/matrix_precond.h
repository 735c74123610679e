#pragma once

#include "base/arena.h"
#include "recurrence/prepare.h"

// The preconditioners that carry a full K x K matrix: the exact inverse Gram of recursive least squares, and MesaNet's
// solve with the regularized Gram. Both end in operands of the ordinary core: RLS in a write key, MesaNet in a query.

namespace deltanet {

void symmetrize(int64_t n, float* matrix, int64_t ld);
// Zeros outside of the blocks of spec.block channels on the diagonal of [Kp][Kp].
void keep_blocks(const Problem& p, float* matrix);

class MatrixPrecond {
 public:
  // `record`: for the backward pass, too.
  MatrixPrecond(const Problem& problem, int64_t key_head, const float* ridge, bool record, Arena& arena);

  // w = P_t k, token by token; see rls.cc.
  void rls_forward(float* P, KeyChunk& chunk);
  // P: before the chunk. Adds to grads.k; the gradient of P goes from the end of the chunk to its start.
  void rls_backward(const float* start, const KeyChunk& chunk, KeyGrads& grads, GateGrads& dgates);

  // q <- (G_t + diag(ridge))^-1 q with G_t = alpha_t G_{t-1} + beta_t k_t k_t^T, by conjugate gradients for all tokens
  // of the chunk at once.
  void mesa_forward(float* G, KeyChunk& chunk);
  // grads.q (of the solution) becomes the gradient of the right-hand side by a second solve; the rest follows from
  // d(solution) = -(G + ridge)^-1 dG solution.
  // The block-diagonal Gram; see block.cc. Without x only the Gram advances.
  void block_forward(float* G, const KeyChunk& chunk, bool previous, const float* x, float* y);
  // y: what forward left. Adds to dx, grads and shared; E, the gradient of the Gram, goes from the end of the chunk to
  // its start.
  void block_backward(const float* start, const KeyChunk& chunk, bool previous, const float* y, const float* dy,
                      float* dx, float* E, KeyGrads& grads, SharedGrads& shared);

  void mesa_backward(const float* G, const KeyChunk& chunk, KeyGrads& grads, GateGrads& dgates, SharedGrads& shared);

 private:
  struct RlsWeights {
    float m, write, update;
  };
  bool forgets() const { return p_.spec.decay != Decay::kNone; }
  bool forget(float alpha, float* P, float* kept) const;
  void scale(float factor, float* P) const;
  RlsWeights rls_update(const float* k, float beta, float inverse, float* P, float* u);
  float forget_backward(float alpha, const float* kept, const float* P, float* dP) const;
  // Of the tokens of the recurrence, where the gain is one and no weight.
  float weight(int64_t t) const { return p_.spec.gain == Gain::kBeta ? beta_[t] : 1.0f; }
  void solve_block(const float* G, int64_t first, int64_t n, double* x);
  void advance_block(float alpha, float beta, const float* k, int64_t first, int64_t n, float* G) const;
  void load_gates(const Span& span);
  void solve(const KeyChunk& chunk, const float* G, float* x);  // in place
  void apply(const KeyChunk& chunk, const float* G, const float* x, float* y);

  const Problem& p_;
  const int64_t head_;
  const float* ridge_;
  float *residual_, *direction_, *image_, *temp_, *k_columns_;  // [kChunk][Kp] (the last [Kp][kChunk])
  float* matrix_temp_;                                          // [Kp][Kp] (at least kChunk rows)
  double *block_ = nullptr, *solution_ = nullptr;               // blocks: a factor and what is solved for
  float* history_ = nullptr;  // [kChunk+1][Kp][Kp], backward: P- of each token, the Gram before each token and after
  alignas(64) float gram_[kChunk * kChunk];
  alignas(64) float alpha_[kChunk];
  float beta_[kChunk];
  float gamma_[kChunk], to_end_[kChunk];  // decay from the start of the chunk, and to its end
  float total_;                           // over the chunk
  float between_[kChunk * kChunk];        // Gamma_ij, i >= j
};

}  // namespace deltanet
