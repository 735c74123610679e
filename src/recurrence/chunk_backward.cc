#include <algorithm>

#include "recurrence/chunk.h"
#include "recurrence/decay.h"

namespace deltanet {

using simd::Into;

// y = x S for `rows` key-side rows: with the state transposed this is (S^T x^T)^T.
void ChunkCore::times_state(int64_t rows, const float* x, int64_t n, const float* state, float* y) {
  p_.simd.transpose(rows, p_.Kp, x, p_.Kp, w_columns_, rows);
  p_.simd.gemm_rows(Into::kSet, {n, rows, p_.K, state, state_stride(), w_columns_, rows, value_columns_, rows});
  p_.simd.transpose(n, rows, value_columns_, rows, y, n);
}

void ChunkCore::advance(const Operands& ops, bool solved, int64_t n, const float* state, float* d, float* next) {
  const int64_t ldm = p_.write_sets * kChunk;
  prefetcher_.plan(1);
  if (p_.erases && !solved) {
    float minus_one[kChunk];
    std::fill_n(minus_one, kChunk, -1.0f);
    times_state(kChunk, ops.e(), n, state, reads_);
    p_.simd.add_scaled_rows(kChunk, n, minus_one, reads_, n, d, n);
    if (p_.write_sets == 2) p_.simd.sub_strict_lower(ops.M() + kChunk, ldm, n, d + kChunk * n, n, d, n);
    p_.simd.solve_lower(ops.M(), ldm, n, d, n);
  }
  p_.simd.gemm_cols(Into::kColScale,
                    {n, p_.Kp, ldm, d, n, ops.w_end, p_.Kp, next, state_stride(), ops.lambda, state, &prefetcher_});
}

void ChunkCore::backward(const Operands& ops, int64_t n, const float* state, const float* d, float* dstate, float* dd,
                         bool add, OperandGrads& sums) {
  const int64_t Kp = p_.Kp, ldk = state_stride(), rows = kChunk * n;
  const int64_t writes = p_.write_sets * kChunk, reads = p_.reads * kChunk;
  const float* d_o = output_gradient(n);
  prefetcher_.plan(2);

  // Gradient of the writes: from the state after the chunk and from the outputs, then back through the solve.
  times_state(writes, ops.w_end, n, dstate, dd);
  p_.simd.add_upper(ops.P(p_), writes, n, d_o, n, dd, n);
  if (p_.erases) {
    p_.simd.solve_upper(ops.M(), writes, n, dd, n);
    float minus_one[kChunk];
    std::fill_n(minus_one, kChunk, -1.0f);
    p_.simd.scale_rows(kChunk, n, minus_one, dd, n, reads_, n);
  }
  if (p_.write_sets == 2) {
    p_.simd.add_upper(ops.P(p_) + kChunk, writes, n, d_o, n, dd + rows, n);
    p_.simd.sub_strict_upper(ops.M() + kChunk, writes, n, dd, n, dd + rows, n);
  }

  // Gradients of the operands, all sums over the value columns.
  const Into into = add ? Into::kAdd : Into::kSet;
  p_.simd.transpose(writes, n, d, n, value_columns_, writes);
  p_.simd.transpose(reads, n, reads_, n, read_columns_, reads);
  p_.simd.gemm_cols(into, {reads, writes, n, read_columns_, reads, value_columns_, writes, sums.mp, writes});
  p_.simd.gemm_cols(into,
                    {reads, Kp, n, read_columns_, reads, state, ldk, sums.eq, Kp, nullptr, nullptr, &prefetcher_});
  p_.simd.gemm_cols(into, {writes, Kp, n, value_columns_, writes, dstate, ldk, sums.w_end, Kp});
  p_.simd.dot_cols(n, Kp, state, ldk, dstate, ldk, add, sums.lambda);

  // Gradient of the state before the chunk.
  p_.simd.gemm_cols(Into::kColScale,
                    {n, Kp, reads, reads_, n, ops.eq, Kp, dstate, ldk, ops.lambda, nullptr, &prefetcher_});
}

void ChunkCore::add(const OperandGrads& part, OperandGrads& sums) const {
  const int64_t writes = p_.write_sets * kChunk, reads = p_.reads * kChunk;
  const auto add_values = [](int64_t count, const float* x, float* y) {
    for (int64_t i = 0; i < count; ++i) y[i] += x[i];
  };
  add_values(reads * p_.Kp, part.eq, sums.eq);
  add_values(writes * p_.Kp, part.w_end, sums.w_end);
  add_values(reads * writes, part.mp, sums.mp);
  add_values(p_.Kp, part.lambda, sums.lambda);
}

void ChunkCore::operands_backward(const KeyChunk& key, const Gates& gates, const Operands& ops, OperandGrads& dops,
                                  GateGrads& dgates, KeyGrads& grads) {
  if (p_.diagonal) {
    diagonal_backward(key, gates, ops, dops, dgates, grads);
  } else {
    scalar_backward(key, gates, ops, dops, dgates, grads);
  }
}

// From the decayed operands back to keys, gates and decays, with one decay per token. Every operand is a product of
// decays times something; its gradient times its value goes to the logarithm of each of those decays.
void ChunkCore::scalar_backward(const KeyChunk& key, const Gates& gates, const Operands& ops, OperandGrads& dops,
                                GateGrads& dgates, KeyGrads& grads) {
  const int64_t Kp = p_.Kp;
  float gamma[kChunk], to_end[kChunk], between[kChunk * kChunk], value[kChunk], factor[kChunk];
  decay_products(gates.alpha, gamma, to_end, between);
  LogDecayGrad decay;
  float* dq_end = dops.eq + (p_.reads - 1) * kChunk * Kp;
  float* dP = dops.mp + (p_.reads - 1) * kChunk * kChunk;
  float* dM = dops.mp;

  p_.simd.dot_rows(kChunk, Kp, dq_end, Kp, ops.q(p_), Kp, value);
  for (int64_t i = 0; i < kChunk; ++i) decay.add(0, i, value[i]);
  p_.simd.dot_rows(kChunk, Kp, dops.w_end, Kp, ops.w_end, Kp, value);
  for (int64_t j = 0; j < kChunk; ++j) decay.add(j + 1, kChunk - 1, value[j]);
  double dlambda = 0.0;
  for (int64_t i = 0; i < p_.K; ++i) dlambda += dops.lambda[i];
  decay.add(0, kChunk - 1, dlambda * gates.total);
  for (int64_t i = 0; i < kChunk; ++i) {
    for (int64_t j = 0; j < kChunk; ++j) {
      float& dp = dP[i * kChunk + j];
      if (j > i) {
        dp = 0.0f;
        continue;
      }
      decay.add(j + 1, i, static_cast<double>(dp) * ops.P(p_)[i * kChunk + j]);
      dp *= between[i * kChunk + j];
    }
  }
  p_.simd.add_scaled_rows(kChunk, Kp, gamma, dq_end, Kp, grads.q, Kp);
  p_.simd.gemm_rows(Into::kAdd, {kChunk, Kp, kChunk, dP, kChunk, key.w, Kp, grads.q, Kp});
  p_.simd.add_scaled_rows(kChunk, Kp, to_end, dops.w_end, Kp, grads.w, Kp);
  p_.simd.gemm_cols(Into::kAdd, {kChunk, Kp, kChunk, dP, kChunk, key.q, Kp, grads.w, Kp});

  if (p_.erases) {
    p_.simd.dot_rows(kChunk, Kp, dops.eq, Kp, ops.e(), Kp, value);
    for (int64_t i = 0; i < kChunk; ++i) {
      const int64_t seen = i - 1;  // the last decay before the erase key reads
      decay.add(0, seen, value[i]);
      factor[i] = seen < 0 ? 1.0f : gamma[seen];
      for (int64_t j = 0; j < kChunk; ++j) {
        float& dm = dM[i * kChunk + j];
        if (j >= i) {
          dm = 0.0f;
          continue;
        }
        decay.add(j + 1, seen, static_cast<double>(dm) * ops.M()[i * kChunk + j]);
        dm *= between[seen * kChunk + j];
      }
    }
    // The gradient of the gained erase key, erase_i k_i, then of its two factors.
    float* de = rows_temp_;
    p_.simd.scale_rows(kChunk, Kp, factor, dops.eq, Kp, de, Kp);
    p_.simd.gemm_rows(Into::kAdd, {kChunk, Kp, kChunk, dM, kChunk, key.w, Kp, de, Kp});
    p_.simd.dot_rows(kChunk, Kp, de, Kp, key.e, Kp, dgates.erase);
    p_.simd.add_scaled_rows(kChunk, Kp, gates.erase, de, Kp, grads.e, Kp);
    p_.simd.scale_rows(kChunk, kChunk, gates.erase, dM, kChunk, dM, kChunk);
    p_.simd.gemm_cols(Into::kAdd, {kChunk, Kp, kChunk, dM, kChunk, key.e, Kp, grads.w, Kp});
  }
  decay.finish(dgates.log_alpha);
}

// The same with a decay vector per token; diag_intra_grad walks the pairs.
void ChunkCore::diagonal_backward(const KeyChunk& key, const Gates& gates, const Operands& ops, OperandGrads& dops,
                                  GateGrads& dgates, KeyGrads& grads) {
  const int64_t Kp = p_.Kp, rows = kChunk * Kp, ldm = p_.write_sets * kChunk;
  diagonal_gammas(gates);
  float* dq_end = dops.eq + (p_.reads - 1) * rows;
  float* dP = dops.mp + (p_.reads - 1) * kChunk * ldm;
  float* log_alpha = dgates.log_alpha_rows;

  // Products since the start of the chunk: token i's reads and, at the end, the state itself.
  p_.simd.mul_rows(kChunk, Kp, dq_end, ops.q(p_), log_alpha);
  float* de = dgates.e_rows;
  if (p_.erases) {
    p_.simd.add_mul_rows(kChunk - 1, Kp, dops.eq + Kp, ops.e() + Kp, log_alpha);
    std::copy_n(dops.eq, Kp, de);
    p_.simd.mul_rows(kChunk - 1, Kp, gamma_rows_, dops.eq + Kp, de + Kp);
  }
  p_.simd.add_mul_rows(1, Kp, dops.lambda, ops.lambda, log_alpha + (kChunk - 1) * Kp);
  const float one = 1.0f;
  for (int64_t i = kChunk - 1; i > 0; --i) {
    p_.simd.add_scaled_rows(1, Kp, &one, log_alpha + i * Kp, Kp, log_alpha + (i - 1) * Kp, Kp);
  }
  p_.simd.add_mul_rows(kChunk, Kp, gamma_rows_, dq_end, grads.q);

  // Products between two tokens of the chunk, or from a token to its end.
  for (int64_t set = 0; set < p_.write_sets; ++set) {
    const simd::DiagIntra pairs{Kp,      gates.e_rows, key.q,  key.w + set * rows, gates.alpha_rows, nullptr,
                                nullptr, ldm,          nullptr};
    p_.simd.diag_intra_grad({pairs, dops.mp + set * kChunk, dP + set * kChunk, ldm, dops.w_end + set * rows, de,
                             grads.q, grads.w + set * rows, log_alpha, dops.eq});
  }
}

}  // namespace deltanet
