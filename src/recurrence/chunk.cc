#include "recurrence/chunk.h"

#include <algorithm>

#include "recurrence/decay.h"

namespace deltanet {

using simd::Into;

namespace {

// Value columns that pass through the chunk together: K x 32 floats of state stay in L1.
constexpr int64_t kPanel = 32;

}  // namespace

ChunkCore::ChunkCore(const Problem& problem, Arena& arena) : p_(problem) {
  const int64_t rows = kChunk * p_.Kp, sets = p_.write_sets, reads = p_.reads;
  w_columns_ = arena.take(sets * rows);
  gram_ = arena.take(reads * kChunk * kChunk);
  gamma_rows_ = arena.take(rows);
  value_columns_ = arena.take(sets * kChunk * kColumnBlock);
  read_columns_ = arena.take(reads * kChunk * kColumnBlock);
  reads_ = arena.take(reads * kChunk * kColumnBlock);
  rows_temp_ = arena.take(rows);
}

Operands ChunkCore::make_operands(Arena& arena) const {
  Operands ops;
  ops.eq = arena.take(p_.reads * kChunk * p_.Kp);
  ops.w_end = arena.take(p_.write_sets * kChunk * p_.Kp);
  ops.mp = arena.take(p_.reads * kChunk * p_.write_sets * kChunk);
  ops.lambda = arena.take(p_.Kp);
  return ops;
}

OperandGrads ChunkCore::make_operand_grads(Arena& arena) const {
  const Operands like = make_operands(arena);
  OperandGrads grads;
  grads.eq = like.eq;
  grads.w_end = like.w_end;
  grads.mp = like.mp;
  grads.lambda = like.lambda;
  return grads;
}

// Under a scalar decay the interactions of all value heads share one Gram matrix of reads and writes.
void ChunkCore::begin_key(const KeyChunk& key) {
  const int64_t reads = (solves(key) ? 1 : 0) + (key.q ? 1 : 0);
  if (p_.diagonal || reads == 0) return;
  p_.simd.transpose(kChunk, p_.Kp, key.w, p_.Kp, w_columns_, kChunk);
  p_.simd.gram({reads * kChunk, kChunk, p_.K, key.eq, p_.Kp, w_columns_, kChunk, gram_, kChunk});
}

void ChunkCore::operands(const KeyChunk& key, const Gates& gates, bool decayed_reads, Operands& ops) {
  if (p_.diagonal) {
    diagonal_operands(key, gates, ops);
  } else {
    scalar_operands(key, gates, decayed_reads, ops);
  }
}

void ChunkCore::scalar_operands(const KeyChunk& key, const Gates& gates, bool decayed_reads, Operands& ops) {
  float gamma[kChunk], to_end[kChunk], between[kChunk * kChunk];
  ops.reads = key.eq;
  decay_products(gates.alpha, gamma, to_end, between);
  p_.simd.scale_rows(kChunk, p_.Kp, to_end, key.w, p_.Kp, ops.w_end, p_.Kp);
  std::fill_n(ops.lambda, p_.Kp, gates.total);

  if (key.q) {
    std::copy_n(gamma, kChunk, ops.read_factor + kChunk);
    if (decayed_reads) p_.simd.scale_rows(kChunk, p_.Kp, gamma, key.q, p_.Kp, ops.q(p_), p_.Kp);
    const float* gram_q = gram_ + (p_.reads - 1) * kChunk * kChunk;
    // P and M are computed as whole squares, which the compiler can vectorize; only their lower triangles are read.
    for (int64_t i = 0; i < kChunk * kChunk; ++i) ops.P(p_)[i] = between[i] * gram_q[i];
  }
  if (!solves(key)) return;
  for (int64_t i = 0; i < kChunk; ++i) {
    ops.read_factor[i] = gates.erase[i] * (i == 0 ? 1.0f : gamma[i - 1]);
    if (i == 0) continue;
    for (int64_t j = 0; j < kChunk; ++j) {
      ops.M()[i * kChunk + j] = gates.erase[i] * between[(i - 1) * kChunk + j] * gram_[i * kChunk + j];
    }
  }
  if (decayed_reads) p_.simd.scale_rows(kChunk, p_.Kp, ops.read_factor, key.e, p_.Kp, ops.e(), p_.Kp);
}

// gamma_rows: the running product of the decays.
void ChunkCore::diagonal_gammas(const Gates& gates) {
  std::copy_n(gates.alpha_rows, p_.Kp, gamma_rows_);
  for (int64_t i = 1; i < kChunk; ++i) {
    p_.simd.mul_rows(1, p_.Kp, gamma_rows_ + (i - 1) * p_.Kp, gates.alpha_rows + i * p_.Kp, gamma_rows_ + i * p_.Kp);
  }
}

void ChunkCore::diagonal_operands(const KeyChunk& key, const Gates& gates, Operands& ops) {
  const int64_t Kp = p_.Kp, ldm = p_.write_sets * kChunk;
  ops.reads = ops.eq;
  std::fill_n(ops.read_factor, 2 * kChunk, 1.0f);
  diagonal_gammas(gates);
  if (key.q) p_.simd.mul_rows(kChunk, Kp, gamma_rows_, key.q, ops.q(p_));
  std::copy_n(gates.total_rows, Kp, ops.lambda);
  if (solves(key)) {
    std::copy_n(gates.e_rows, Kp, ops.e());
    p_.simd.mul_rows(kChunk - 1, Kp, gamma_rows_, gates.e_rows + Kp, ops.e() + Kp);
  }
  for (int64_t set = 0; set < p_.write_sets; ++set) {
    p_.simd.diag_intra({Kp, solves(key) ? gates.e_rows : nullptr, key.q, key.w + set * kChunk * Kp, gates.alpha_rows,
                        ops.M() + set * kChunk, ops.P(p_) + set * kChunk, ldm, ops.w_end + set * kChunk * Kp});
  }
}

void ChunkCore::forward(const Operands& ops, int64_t n, float* S, int64_t lds, float* d, int64_t ldd, float* o,
                        int64_t ldo) {
  const int64_t Kp = p_.Kp, ldm = p_.write_sets * kChunk;
  const float* queries = ops.reads + (p_.reads - 1) * kChunk * Kp;
  prefetcher_.plan((n + kPanel - 1) / kPanel);
  for (int64_t col = 0; col < n; col += kPanel) {
    const int64_t width = std::min(kPanel, n - col);
    float *Sc = S + col, *dc = d + col, *oc = o + col;
    const float* given = dc + kChunk * ldd;  // DPLR's second set of writes
    if (p_.erases) {
      p_.simd.gemm_rows(Into::kSubScaled, {kChunk, width, p_.K, ops.reads, Kp, Sc, lds, dc, ldd, ops.read_factor});
      if (p_.write_sets == 2) p_.simd.sub_strict_lower(ops.M() + kChunk, ldm, width, given, ldd, dc, ldd);
      p_.simd.solve_lower(ops.M(), ldm, width, dc, ldd);
    }
    p_.simd.gemm_rows(Into::kSetScaled, {kChunk, width, p_.K, queries, Kp, Sc, lds, oc, ldo, ops.read_factor + kChunk});
    p_.simd.add_lower(ops.P(p_), ldm, width, dc, ldd, oc, ldo);
    if (p_.write_sets == 2) p_.simd.add_lower(ops.P(p_) + kChunk, ldm, width, given, ldd, oc, ldo);
    p_.simd.gemm_cols(Into::kRowScale,
                      {Kp, width, ldm, ops.w_end, Kp, dc, ldd, Sc, lds, ops.lambda, nullptr, &prefetcher_});
  }
}

}  // namespace deltanet
