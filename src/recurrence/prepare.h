#pragma once

#include "base/arena.h"
#include "recurrence/problem.h"

// prepare: everything that distinguishes the rows, elementwise in the key dimension. It turns the inputs of up to
// kChunk tokens into the operands that the core knows: read query, erase key, write key, gains and decays. Key-head
// quantities are computed once and shared by the value heads of the group. README.md derives the gradients.

namespace deltanet {

class MatrixPrecond;

// The index of what there is of a side.
inline int at(Side side) { return static_cast<int>(side); }

// What a key head carries from token to token besides S, for each side that carries something.
struct KeyState {
  float* A[2] = {};       // [Kp] second moment; where both sides have one they are equal
  float* matrix[2] = {};  // [Kp][Kp]: P of RLS (key) or G of MesaNet (query)

  static KeyState make(const Problem& p, Arena& arena);
  void load_initial(const Problem& p, const Sequence& sequence, int64_t head);
  void store_final(const Problem& p, const Sequence& sequence, int64_t head, const Outputs& out) const;
  void copy_from(const Problem& p, const KeyState& other);
};

// The chunk of one key head. Matrices are [kChunk][Kp] unless said otherwise.
struct KeyChunk {
  Span span{};
  float* eq = nullptr;  // [reads*kChunk][Kp]: the erase key stacked on the read query
  float* e = nullptr;   // first half of eq; null for offline rows
  float* q = nullptr;   // last half of eq; null if only states are wanted
  float* k = nullptr;   // normalized key; the same rows as e except for offline and DPLR rows
  float* w = nullptr;   // [write_sets*kChunk][Kp]; the same rows as k where nothing is applied to the write key
  float m[kChunk];      // k . w, if the gain reads it

  // Recorded for the backward pass.
  float* q_normal = nullptr;  // after the L2 norm, before correction, scale and preconditioner
  float* q_plain = nullptr;   // what the query-side diagonal preconditioner was applied to
  struct Scan {
    float *A_previous = nullptr, *B = nullptr, *slope = nullptr;
  } scan[2];             // by side
  float* eta = nullptr;  // RWKV-7
  float q_inverse_norm[kChunk], k_inverse_norm[kChunk];
  alignas(64) float alpha_atk[kChunk];
  float beta_atk[kChunk];           // gates of the preconditioner
  float total_atk;                  // decay over the chunk
  float* alpha_atk_rows = nullptr;  // the decays when they are tied to diagonal ones
  float* total_atk_rows = nullptr;  // [Kp] likewise
  KeyState start;                   // state before the chunk
};

// The gates of one value head over a chunk.
struct Gates {
  float gain[kChunk];               // multiplies the value
  float erase[kChunk];              // multiplies the erase key, and holds its scalar decay
  float* e_rows = nullptr;          // [kChunk][Kp] diagonal decay: the erase key with gain and decay
  float beta[kChunk];               // the input behind the gain
  alignas(64) float alpha[kChunk];  // scalar decay
  float total;                      // over the chunk
  float* alpha_rows = nullptr;      // [kChunk][Kp] diagonal decay
  float* total_rows = nullptr;      // [Kp] over the chunk
};

// What the core receives as values, [write_sets*kChunk][ld]: `columns` gained value columns from `first` on, behind a
// set of zero writes for DPLR.
void load_values(const Problem& p, const Span& span, int64_t value_head, int64_t first, int64_t columns,
                 const Gates& gates, float* d, int64_t ld);

struct GateGrads {
  float gain[kChunk], erase[kChunk];
  float beta[kChunk], beta_erase[kChunk];
  float log_alpha[kChunk];
  float* log_alpha_rows = nullptr;
  float* e_rows = nullptr;
};

// Gradients of a key head's chunk, summed over the value heads of the group. e and w point at k's rows where the
// chunk's do, so that everything that reaches the normalized key meets in one place.
struct KeyGrads {
  float *e = nullptr, *q = nullptr, *k = nullptr, *w = nullptr;
  float m[kChunk];
  KeyState state;                                 // gradients of what is carried
  float beta_atk[kChunk], log_alpha_atk[kChunk];  // gradients of the gates of the moment, from both sides
};

// Gradients of the parameters that all tokens of a head share, over one sequence.
struct SharedGrads {
  double center = 0.0, d = 0.0;
  std::vector<double> ridge;  // [K]
  std::vector<double> g;      // [group], constant decay

  explicit SharedGrads(const Problem& p) : ridge(p.K, 0.0), g(p.group, 0.0) {}
};

enum class Purpose {
  kForward,
  kStates,    // only the states are wanted: no queries
  kBackward,  // chunks also record what backward() needs
};

class Prepare {
 public:
  Prepare(const Problem& problem, int64_t key_head, Purpose purpose, Arena& arena);

  KeyChunk make_chunk(Arena& arena) const;
  Gates make_gates(Arena& arena) const;
  GateGrads make_gate_grads(Arena& arena) const;
  KeyGrads make_grads(Arena& arena) const;

  // Fills the chunk from the inputs and advances the state over it.
  void forward(const Span& span, KeyState& state, KeyChunk& chunk);
  // Advances a second moment alone; `chunk` is scratch.
  void skip(const Span& span, KeyState& state, KeyChunk& chunk);
  void gates(const KeyChunk& chunk, int64_t value_head, Gates& gates) const;

  // Call order for a chunk: clear(grads); core and gates_backward for each value head; backward; store_gates.
  void clear(KeyGrads& grads) const;
  // From the gradients of gain and erase to those of beta, the decay and k.w. Overwrites e_rows of `dgates`.
  void gates_backward(const KeyChunk& chunk, const Gates& gates, GateGrads& dgates, KeyGrads& grads) const;
  // From read query, erase and write key to the inputs of the key head, which are stored in `out`. `tied` receives the
  // share of beta and the decay if the preconditioner uses them.
  void backward(KeyChunk& chunk, KeyGrads& grads, GateGrads& tied, SharedGrads& shared, const InputGradients& out);
  void store_gates(const Span& span, int64_t value_head, const GateGrads& dgates, SharedGrads& shared,
                   const InputGradients& out) const;

 private:
  void load_normal(const ConstTensor& source, const Span& span, float factor, float* rows, float* inverse_norm) const;
  void write_key(KeyState& state, KeyChunk& chunk);
  void read_query(KeyState& state, KeyChunk& chunk);
  void low_rank_factors(KeyChunk& chunk);
  void preconditioner_gates(KeyChunk& chunk);
  void scan(Side side, KeyState& state, KeyChunk& chunk, const float* x, float* y);
  void write_key_backward(KeyChunk& chunk, KeyGrads& grads, GateGrads& tied, SharedGrads& shared);
  void read_query_backward(KeyChunk& chunk, KeyGrads& grads, GateGrads& tied, SharedGrads& shared);
  void scan_backward(Side side, const KeyChunk& chunk, const float* x, const float* dy, float* dx, KeyGrads& grads,
                     GateGrads& tied, SharedGrads& shared);
  void low_rank_factors_backward(const KeyChunk& chunk, KeyGrads& grads, const InputGradients& out);

  const Problem& p_;
  const int64_t head_;
  const bool record_, queries_;
  float* temp_;                    // [kChunk][Kp]
  float* ridge_ = nullptr;         // [Kp]
  float* dridge_ = nullptr;        // [Kp]
  MatrixPrecond* matrix_[2] = {};  // RLS (key) and MesaNet (query); in the arena
};

}  // namespace deltanet
