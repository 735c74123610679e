#include <algorithm>

#include "base/interrupt.h"
#include "recurrence/prepare.h"
#include "recurrence/tasks.h"

// The token-by-token form: prepare as in the chunkwise form, then two passes over S for each token. One token of this
// is the decode step.

namespace deltanet {
namespace {

// S of one value head: the caller's own memory where its rows are dense, a copy otherwise.
struct StateInPlace {
  float* S;
  int64_t lds;
  bool is_copy;
};

StateInPlace open_state(const Problem& p, const Sequence& sequence, int64_t value_head, const Tensor& S_final,
                        Arena& arena) {
  const ConstTensor& from = p.in.S0;
  const Tensor& to = S_final;
  const int64_t n = sequence.index;
  StateInPlace state{};
  if (to && to.stride[3] == 1) {
    state = {to.data + n * to.stride[0] + value_head * to.stride[1], to.stride[2], false};
  } else {
    state = {arena.take(p.K * p.V), p.V, true};
  }
  const bool in_place = !state.is_copy && from.data == to.data && from.stride == to.stride;
  if (from && !in_place) {
    load_state(from, n, value_head, p.K, p.V, state.S, state.lds);
  } else if (!from) {
    for (int64_t i = 0; i < p.K; ++i) std::fill_n(state.S + i * state.lds, p.V, 0.0f);
  }
  return state;
}

class TokenStep {
 public:
  TokenStep(const Problem& p, Arena& arena)
      : p_(p), e_(arena.take(p.Kp)), q_(arena.take(p.Kp)), v_(arena.take(p.Vp)), o_(arena.take(p.Vp)) {}

  void run(const KeyChunk& key, const Gates& gates, int64_t t, int64_t value_head, const float* values,
           const StateInPlace& state, const Outputs& out) {
    const int64_t Kp = p_.Kp;
    const bool dplr = p_.write_sets == 2;
    simd::Step step{};
    step.k_rows = p_.K;
    step.n = p_.V;
    step.S = state.S;
    step.lds = state.lds;
    const float* q = key.q + t * Kp;
    step.w = key.w + t * Kp;
    p_.simd.dot_rows(1, Kp, step.w, Kp, q, Kp, &step.w_dot_q);
    if (p_.diagonal) {
      step.alpha = gates.alpha_rows + t * Kp;
      p_.simd.mul_rows(1, Kp, step.alpha, q, q_);
    } else {
      step.alpha_scalar = gates.alpha[t];
      p_.simd.scale_rows(1, Kp, gates.alpha + t, q, Kp, q_, Kp);
    }
    step.q = q_;
    if (p_.erases) {
      if (!gates.e_rows) p_.simd.scale_rows(1, Kp, gates.erase + t, key.e + t * Kp, Kp, e_, Kp);
      step.e = gates.e_rows ? gates.e_rows + t * Kp : e_;
    }
    p_.simd.scale_rows(1, p_.Vp, gates.gain + t, values, p_.Vp, v_, p_.Vp);
    step.v = dplr ? nullptr : v_;
    if (dplr) {
      step.v2 = v_;
      step.k2 = key.k + t * Kp;
      p_.simd.dot_rows(1, Kp, step.k2, Kp, q, Kp, &step.k2_dot_q);
    }
    step.o = o_;
    p_.simd.step(step);
    if (!out.o) return;
    store_tokens(o_, p_.Vp, {key.span.batch, key.span.token + t, 1, 1}, value_head, p_.V, out.o);
  }

 private:
  const Problem& p_;
  float *e_, *q_, *v_, *o_;
};

void run_head(const Problem& p, const Sequence& sequence, int64_t key_head, const Outputs& out) {
  const TaskArena task_arena;
  Arena& arena = task_arena.get();
  Prepare prepare(p, key_head, Purpose::kForward, arena);
  TokenStep token_step(p, arena);
  KeyState key_state = KeyState::make(p, arena);
  key_state.load_initial(p, sequence, key_head);
  KeyChunk key = prepare.make_chunk(arena);
  Gates gates = prepare.make_gates(arena);
  float* values = arena.take(kChunk * p.Vp);
  const int64_t first_value = key_head * p.group;
  thread_local std::vector<StateInPlace> states;  // decoding allocates nothing
  states.clear();
  for (int64_t v = 0; v < p.group; ++v) states.push_back(open_state(p, sequence, first_value + v, out.S_final, arena));

  for (int64_t token = sequence.begin; token < sequence.end; token += kChunk) {
    check_interrupt();
    const int64_t rows = std::min(kChunk, sequence.end - token);
    // RLS and MesaNet work on whole chunks of keys.
    const Span span{sequence.batch, token, rows, p.has_matrix() ? kChunk : rows};
    prepare.forward(span, key_state, key);
    for (int64_t v = 0; v < p.group; ++v) {
      prepare.gates(key, first_value + v, gates);
      load_tokens(p.in.v, span, first_value + v, p.V, values, p.Vp);
      for (int64_t t = 0; t < rows; ++t)
        token_step.run(key, gates, t, first_value + v, values + t * p.Vp, states[v], out);
    }
  }

  for (int64_t v = 0; v < p.group; ++v) {
    if (!out.S_final || !states[v].is_copy) continue;
    store_state(states[v].S, states[v].lds, sequence.index, first_value + v, p.K, p.V, out.S_final);
  }
  key_state.store_final(p, sequence, key_head, out);
}

}  // namespace

void run_recurrent(const Problem& p, const Task& task, const Outputs& out) {
  for (int64_t h = 0; h < task.heads; ++h) run_head(p, task.sequence, task.first_head + h, out);
}

}  // namespace deltanet
