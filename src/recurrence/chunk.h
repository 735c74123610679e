#pragma once

#include "base/arena.h"
#include "recurrence/prepare.h"

// The chunk engine: one value head, kChunk tokens at a time, for every row of the table. With the operands of a chunk,
// gained values c v [kChunk][V] and the state S [K][V],
//   (I + M) D = c v - E S,   o = Q S + P D,   S <- diag(lambda) S + W^T D                      (Eq. 6; README.md)

namespace deltanet {

// What the state sees of a chunk. The decay is folded in, so the streaming part below is the same for every decay.
struct Operands {
  float* eq = nullptr;                 // [reads*kChunk][Kp] erase keys and queries, decayed from the start of the chunk
  const float* reads = nullptr;        // eq as forward() takes it: diag(read_factor) reads = eq
  float read_factor[2 * kChunk] = {};  // erase keys first, then queries
  float* w_end = nullptr;              // [write_sets*kChunk][Kp] write keys, decayed to the end of the chunk
  float* mp = nullptr;      // [reads*kChunk][write_sets*kChunk] interactions inside the chunk: M (erase), then P (read)
  float* lambda = nullptr;  // [Kp] decay over the whole chunk

  float* e() const { return eq; }
  float* q(const Problem& p) const { return eq + (p.reads - 1) * kChunk * p.Kp; }
  float* M() const { return mp; }
  float* P(const Problem& p) const { return mp + (p.reads - 1) * kChunk * p.write_sets * kChunk; }
};

// Gradients of the operands: sums over the value columns.
struct OperandGrads {
  float* eq = nullptr;  // like Operands
  float* w_end = nullptr;
  float* mp = nullptr;
  float* lambda = nullptr;
  float gain[kChunk];  // gradient of the gain of the values
};

// The backward pass runs over blocks of value columns, whose sums it adds in order. The blocks are fixed so that the
// result does not depend on how many threads share them.
inline constexpr int64_t kColumnBlock = 64;

class ChunkCore {
 public:
  ChunkCore(const Problem& problem, Arena& arena);

  Operands make_operands(Arena& arena) const;
  OperandGrads make_operand_grads(Arena& arena) const;
  // Rows of the value-side matrices below: one per write, the solved ones first.
  int64_t value_rows() const { return p_.write_sets * kChunk; }
  // What to ask for meanwhile; the caller fills it before forward(), advance() or backward().
  simd::Prefetcher& prefetcher() { return prefetcher_; }

  // begin_key once per key chunk, then operands for each of its value heads. forward() needs no eq where the decay is
  // scalar: it scales the products instead of the keys, which are wider. The others do (`decayed_reads`).
  void begin_key(const KeyChunk& key);
  void operands(const KeyChunk& key, const Gates& gates, bool decayed_reads, Operands& ops);

  // Streams n value columns through the chunk. S is [Kp][lds] and becomes the state after the chunk; d is
  // [value_rows][ldd], holds the gained values on entry and the solved writes on return; o is [kChunk][ldo].
  void forward(const Operands& ops, int64_t n, float* S, int64_t lds, float* d, int64_t ldd, float* o, int64_t ldo);

  // The backward pass keeps states transposed, [columns][state_stride()]: all its large products then run along the key
  // dimension. n counts padded columns, at most kColumnBlock; value-side matrices have row distance n.
  int64_t state_stride() const { return simd::panel_stride(p_.K); }
  // next = the state after the chunk, from `state` before it. d as in forward(); if `solved`, it already holds the
  // solved writes and is only read.
  void advance(const Operands& ops, bool solved, int64_t n, const float* state, float* d, float* next);
  // Where backward() expects the gradient of the outputs, [kChunk][n].
  float* output_gradient(int64_t n) { return reads_ + (p_.reads - 1) * kChunk * n; }
  // state and d: before the chunk, and solved; dstate: gradient of the state after it, becomes that before it; dd
  // returns the gradient of what d held on entry to forward(). Sets the sums over columns, or adds to them.
  void backward(const Operands& ops, int64_t n, const float* state, const float* d, float* dstate, float* dd, bool add,
                OperandGrads& sums);
  void add(const OperandGrads& part, OperandGrads& sums) const;  // all but the gain
  // From the operands to the keys and gates. Adds to grads; sets log_alpha of dgates, and erase or e_rows. Overwrites
  // dops.
  void operands_backward(const KeyChunk& key, const Gates& gates, const Operands& ops, OperandGrads& dops,
                         GateGrads& dgates, KeyGrads& grads);

 private:
  // Whether the operands of the solve are wanted. Without queries only states are, and then not if its result is
  // handed.
  bool solves(const KeyChunk& key) const { return p_.erases && (key.q || !p_.writes); }
  void scalar_operands(const KeyChunk& key, const Gates& gates, bool decayed_reads, Operands& ops);
  void diagonal_operands(const KeyChunk& key, const Gates& gates, Operands& ops);
  void scalar_backward(const KeyChunk& key, const Gates& gates, const Operands& ops, OperandGrads& dops,
                       GateGrads& dgates, KeyGrads& grads);
  void diagonal_backward(const KeyChunk& key, const Gates& gates, const Operands& ops, OperandGrads& dops,
                         GateGrads& dgates, KeyGrads& grads);
  void diagonal_gammas(const Gates& gates);
  void times_state(int64_t rows, const float* x, int64_t n, const float* state, float* y);

  const Problem& p_;
  simd::Prefetcher prefetcher_;
  float* w_columns_;   // [Kp][sets*kChunk]: write keys transposed
  float* gram_;        // [reads*kChunk][kChunk]
  float* gamma_rows_;  // [kChunk][Kp] diagonal decay since the start of the chunk
  // Backward only.
  float* value_columns_;  // [kColumnBlock][sets*kChunk]
  float* read_columns_;   // [kColumnBlock][reads*kChunk]
  float* reads_;          // [reads*kChunk][kColumnBlock]: -X stacked on do
  float* rows_temp_;      // [kChunk][Kp]
};

}  // namespace deltanet
