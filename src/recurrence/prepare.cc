#include "recurrence/prepare.h"

#include <algorithm>
#include <cmath>

#include "recurrence/decay.h"
#include "recurrence/gains.h"
#include "recurrence/matrix_precond.h"

namespace deltanet {
namespace {

void load_ridge(const Problem& p, int64_t head, float* ridge) {
  const ConstTensor& t = p.in.ridge;
  for (int64_t i = 0; i < p.K; ++i) ridge[i] = t.data[head * t.stride[0] + i * t.stride[1]];
  std::fill(ridge + p.K, ridge + p.Kp, 1.0f);  // keeps 1/(A + ridge) finite in the padding
}

}  // namespace

KeyState KeyState::make(const Problem& p, Arena& arena) {
  KeyState state;
  for (const Side side : kSides) {
    if (p.has_moment(side)) state.A[at(side)] = arena.take_zeros(p.Kp);
    if (p.has_matrix(side)) state.matrix[at(side)] = arena.take_zeros(p.Kp * p.Kp);
  }
  return state;
}

void KeyState::load_initial(const Problem& p, const Sequence& sequence, int64_t head) {
  for (float* moment : A) {
    if (!moment) continue;
    std::fill_n(moment, p.Kp, 0.0f);
    if (p.in.A0) load_state(p.in.A0, sequence.index, head, 1, p.K, moment, 0);
  }
  for (const Side side : kSides) {
    float* m = matrix[at(side)];
    if (!m) continue;
    std::fill_n(m, p.Kp * p.Kp, 0.0f);
    const bool inverse = p.on(side).carries == Carried::kInverseGram;
    const ConstTensor& initial = inverse ? p.in.P0 : p.in.G0;
    if (initial) {
      load_state(initial, sequence.index, head, p.K, p.K, m, p.Kp);
      symmetrize(p.K, m, p.Kp);
      if (p.on(side).operation == Operation::kBlock) keep_blocks(p, m);
    } else if (inverse) {
      const ConstTensor& ridge = p.in.ridge;  // [H], or [H,K]
      for (int64_t i = 0; i < p.K; ++i) {
        m[i * p.Kp + i] = 1.0f / ridge.data[head * ridge.stride[0] + (ridge.rank == 2 ? i * ridge.stride[1] : 0)];
      }
    }
  }
}

void KeyState::store_final(const Problem& p, const Sequence& sequence, int64_t head, const Outputs& out) const {
  const float* moment = A[0] ? A[0] : A[1];
  if (moment && out.A_final) store_state(moment, 0, sequence.index, head, 1, p.K, out.A_final);
  for (const Side side : kSides) {
    const Tensor& target = p.on(side).carries == Carried::kInverseGram ? out.P_final : out.G_final;
    if (side == Side::kQuery && p.both_blocks()) continue;  // the same Gram
    if (matrix[at(side)] && target) {
      store_state(matrix[at(side)], p.Kp, sequence.index, head, p.K, p.K, target);
    }
  }
}

void KeyState::copy_from(const Problem& p, const KeyState& other) {
  for (const Side side : kSides) {
    const int i = at(side);
    if (A[i]) std::copy_n(other.A[i], p.Kp, A[i]);
    if (matrix[i]) std::copy_n(other.matrix[i], p.Kp * p.Kp, matrix[i]);
  }
}

void load_values(const Problem& p, const Span& span, int64_t value_head, int64_t first, int64_t columns,
                 const Gates& gates, float* d, int64_t ld) {
  float* values = d + (p.write_sets - 1) * kChunk * ld;
  if (p.write_sets == 2) std::fill_n(d, kChunk * ld, 0.0f);
  load_tokens(columns_from(p.in.v, first), span, value_head, columns, values, ld);
  p.simd.scale_rows(kChunk, simd::padded(columns), gates.gain, values, ld, values, ld);
}

Prepare::Prepare(const Problem& problem, int64_t key_head, Purpose purpose, Arena& arena)
    : p_(problem),
      head_(key_head),
      record_(purpose == Purpose::kBackward),
      queries_(purpose != Purpose::kStates),
      temp_(arena.take(kChunk * problem.Kp)) {
  if (preconditioner_axes(p_.spec, "ridge") == "HK") {
    ridge_ = arena.take(p_.Kp);
    load_ridge(p_, head_, ridge_);
  }
  if (record_) dridge_ = arena.take(p_.Kp);
  for (const Side side : kSides) {
    if (!p_.has_matrix(side)) continue;
    // In the arena, like everything else that a step needs.
    static_assert(std::is_trivially_destructible_v<MatrixPrecond> && sizeof(MatrixPrecond) % sizeof(float) == 0);
    matrix_[at(side)] =
        new (arena.take(sizeof(MatrixPrecond) / sizeof(float))) MatrixPrecond(p_, head_, ridge_, record_, arena);
  }
}

KeyChunk Prepare::make_chunk(Arena& arena) const {
  const int64_t rows = kChunk * p_.Kp;
  KeyChunk c;
  c.eq = arena.take(p_.reads * rows);
  if (queries_) c.q = c.eq + (p_.reads - 1) * rows;
  if (p_.erases) c.e = c.eq;
  if (p_.write_sets == 2) {
    c.w = arena.take(2 * rows);
    c.k = c.w + rows;
    if (record_ && p_.spec.tying == Tying::kRwkv7) c.eta = arena.take(rows);
  } else {
    c.k = p_.erases && !p_.own_erase_key ? c.e : arena.take(rows);
    c.w = p_.own_write_key() ? arena.take(rows) : c.k;
  }
  if (p_.spec.tie_gates && p_.spec.decay == Decay::kDiag) {
    c.alpha_atk_rows = arena.take(rows);
    c.total_atk_rows = arena.take(p_.Kp);
  }
  if (!record_) return c;
  c.q_normal = arena.take(rows);
  if (p_.has_moment(Side::kQuery)) c.q_plain = arena.take(rows);
  for (const Side side : kSides) {
    if (p_.has_moment(side)) c.scan[at(side)] = {arena.take(rows), arena.take(rows), arena.take(rows)};
  }
  c.start = KeyState::make(p_, arena);
  return c;
}

Gates Prepare::make_gates(Arena& arena) const {
  Gates gates;
  if (p_.diagonal) {
    gates.alpha_rows = arena.take(kChunk * p_.Kp);
    gates.total_rows = arena.take(p_.Kp);
  }
  if (p_.diagonal && p_.erases) gates.e_rows = arena.take(kChunk * p_.Kp);
  return gates;
}

GateGrads Prepare::make_gate_grads(Arena& arena) const {
  GateGrads grads;
  if (p_.diagonal) grads.log_alpha_rows = arena.take(kChunk * p_.Kp);
  if (p_.diagonal && p_.erases) grads.e_rows = arena.take(kChunk * p_.Kp);
  return grads;
}

KeyGrads Prepare::make_grads(Arena& arena) const {
  const int64_t rows = kChunk * p_.Kp;
  KeyGrads g;
  g.q = arena.take(rows);
  if (p_.write_sets == 2) {
    g.w = arena.take(2 * rows);
    g.k = g.w + rows;
  } else {
    g.k = arena.take(rows);
    g.w = p_.own_write_key() ? arena.take(rows) : g.k;
  }
  g.e = p_.own_erase_key ? arena.take(rows) : g.k;
  return g;
}

// Rows of q or k, normalized where the row asks for it, times `factor`.
void Prepare::load_normal(const ConstTensor& source, const Span& span, float factor, float* rows,
                          float* inverse_norm) const {
  const int64_t Kp = p_.Kp;
  const bool direct = p_.spec.l2norm && span.tokens == span.fill && p_.K == Kp && source.stride[3] == 1;
  if (!direct) load_tokens(source, span, head_, p_.K, rows, Kp);
  if (p_.spec.l2norm) {
    const float eps = static_cast<float>(p_.spec.l2norm_eps);
    const float* x = direct ? first_token(source, span, head_) : rows;
    p_.simd.l2norm_rows(span.fill, Kp, eps, factor, x, direct ? source.stride[1] : Kp, rows, inverse_norm);
  } else if (factor != 1.0f) {
    float factors[kChunk];
    std::fill_n(factors, kChunk, factor);
    p_.simd.scale_rows(span.fill, Kp, factors, rows, Kp, rows, Kp);
  }
}

void Prepare::forward(const Span& span, KeyState& state, KeyChunk& c) {
  const int64_t Kp = p_.Kp;
  c.span = span;
  if (record_) c.start.copy_from(p_, state);
  load_normal(p_.in.k, span, 1.0f, c.k, c.k_inverse_norm);
  const bool minus_key = p_.query.operation == Operation::kMinusKey;
  if (queries_ && !record_ && !minus_key) {
    load_normal(p_.in.q, span, p_.scale, c.q, c.q_inverse_norm);
  } else if (queries_) {
    load_normal(p_.in.q, span, 1.0f, c.q, c.q_inverse_norm);
    if (record_) std::copy_n(c.q, kChunk * Kp, c.q_normal);
    float factor[kChunk];
    if (minus_key) {
      std::fill_n(factor, kChunk, -p_.in.d.data[head_ * p_.in.d.stride[0]]);
      p_.simd.add_scaled_rows(span.fill, Kp, factor, c.k, Kp, c.q, Kp);
    }
    std::fill_n(factor, kChunk, p_.scale);
    p_.simd.scale_rows(span.fill, Kp, factor, c.q, Kp, c.q, Kp);
  }

  if (has_gates(p_.spec)) preconditioner_gates(c);
  if (p_.spec.solve == Solve::kDplr) {
    low_rank_factors(c);
  } else {
    if (p_.in.k_erase) load_tokens(p_.in.k_erase, c.span, head_, p_.K, c.e, Kp);
    write_key(state, c);
  }
  read_query(state, c);
}

// The write key from k.
void Prepare::write_key(KeyState& state, KeyChunk& c) {
  const int64_t Kp = p_.Kp, fill = c.span.fill;
  switch (p_.key.operation) {
    case Operation::kCopy:
      std::copy_n(c.k, fill * Kp, c.w);
      break;
    case Operation::kGiven:
      load_tokens(p_.in.k_write, c.span, head_, p_.K, c.w, Kp);
      break;
    case Operation::kDiagonal:
      scan(Side::kKey, state, c, c.k, c.w);
      break;
    case Operation::kBlock:
      matrix_[at(Side::kKey)]->block_forward(state.matrix[at(Side::kKey)], c, /*previous=*/true, c.k, c.w);
      break;
    case Operation::kRls:
      matrix_[at(Side::kKey)]->rls_forward(state.matrix[at(Side::kKey)], c);
      break;
    default:  // k itself
      break;
  }
  if (reads_m(p_.spec.gain)) p_.simd.dot_rows(fill, Kp, c.k, Kp, c.w, Kp, c.m);
}

// The read query from q, in place. Without queries only what is carried advances.
void Prepare::read_query(KeyState& state, KeyChunk& c) {
  const int64_t rows = kChunk * p_.Kp;
  if (p_.query.operation == Operation::kMesa) {
    matrix_[at(Side::kQuery)]->mesa_forward(state.matrix[at(Side::kQuery)], c);
  }
  if (p_.query.operation == Operation::kBlock) {
    matrix_[at(Side::kQuery)]->block_forward(state.matrix[at(Side::kQuery)], c, /*previous=*/false, c.q, c.q);
  }
  if (p_.query.operation != Operation::kDiagonal) return;
  if (!c.q) return scan(Side::kQuery, state, c, c.k, temp_);
  float* plain = c.q;
  if (record_ || p_.query.squashed) {  // the squash needs its result apart from what it is applied to
    plain = record_ ? c.q_plain : temp_;
    std::copy_n(c.q, rows, plain);
  }
  scan(Side::kQuery, state, c, plain, c.q);
}

// y = B*x, advancing A.
void Prepare::scan(Side side, KeyState& state, KeyChunk& c, const float* x, float* y) {
  simd::PrecondScan scan{};
  scan.kind = p_.scan_kind(side);
  scan.rows = c.span.fill;
  scan.n = p_.Kp;
  scan.k = c.k;
  scan.x = x;
  scan.alpha = c.alpha_atk_rows ? c.alpha_atk_rows : c.alpha_atk;
  scan.alpha_is_row = c.alpha_atk_rows != nullptr;
  scan.total = c.total_atk_rows ? c.total_atk_rows : &c.total_atk;
  scan.beta = c.beta_atk;
  scan.eps = static_cast<float>(p_.spec.eps);
  if (p_.in.log_atk_scale) scan.center = p_.in.log_atk_scale.data[head_ * p_.in.log_atk_scale.stride[0]];
  scan.curve = &p_.curve;
  scan.ridge = ridge_;
  scan.A = state.A[at(side)];
  scan.y = y;
  scan.A_previous = c.scan[at(side)].A_previous;
  scan.B = c.scan[at(side)].B;
  scan.slope = c.scan[at(side)].slope;
  p_.simd.precond_scan(scan);
}

void Prepare::skip(const Span& span, KeyState& state, KeyChunk& c) {
  c.span = span;
  load_normal(p_.in.k, span, 1.0f, c.k, c.k_inverse_norm);
  preconditioner_gates(c);
  for (const Side side : kSides) {
    if (p_.has_moment(side)) scan(side, state, c, nullptr, nullptr);
  }
}

// DPLR: S_t = diag(alpha) S_{t-1} - b (a^T S_{t-1}) + k v^T. The erase key is a, the write keys are b and k.
void Prepare::low_rank_factors(KeyChunk& c) {
  const int64_t Kp = p_.Kp;
  const Inputs& in = p_.in;
  float* b = c.w;  // k itself where b = k
  load_tokens(p_.spec.tying == Tying::kRwkv7 ? in.kk : in.a, c.span, head_, p_.K, c.e, Kp);
  switch (p_.spec.tying) {
    case Tying::kGeneral:
      load_tokens(in.b, c.span, head_, p_.K, b, Kp);
      break;
    case Tying::kAEqB:
      std::copy_n(c.e, c.span.fill * Kp, b);
      break;
    case Tying::kBEqK:
      break;
    case Tying::kRwkv7: {
      float* eta = c.eta ? c.eta : temp_;
      load_tokens(in.eta, c.span, head_, p_.K, eta, Kp);
      p_.simd.mul_rows(c.span.fill, Kp, eta, c.e, b);
      break;
    }
  }
}

// alpha and beta of the second-moment scan: inputs of their own, or those of the main recurrence.
void Prepare::preconditioner_gates(KeyChunk& c) {
  const bool tied = p_.spec.tie_gates;
  const ConstTensor& beta = tied ? p_.in.beta : p_.in.beta_atk;
  if (beta) {
    load_scalars(beta, c.span, head_, 0.0f, c.beta_atk);
  } else {
    std::fill_n(c.beta_atk, kChunk, 1.0f);  // missing tokens have zero keys and add nothing
  }
  if (c.alpha_atk_rows) {
    load_tokens(p_.in.g, c.span, head_, p_.K, c.alpha_atk_rows, p_.Kp);
    p_.simd.decay_rows(c.span.fill, p_.Kp, c.alpha_atk_rows, c.total_atk_rows);
    return;
  }
  const ConstTensor& g = tied ? p_.in.g : p_.in.g_atk;
  std::fill_n(c.alpha_atk, kChunk, 0.0f);
  if (g && g.rank == 1) {
    std::fill_n(c.alpha_atk, c.span.tokens, g.data[head_ * g.stride[0]]);
  } else if (g) {
    load_scalars(g, c.span, head_, 0.0f, c.alpha_atk);
  }
  c.total_atk = chunk_decay(c.alpha_atk);
  p_.simd.exp_rows(kChunk, c.alpha_atk, c.alpha_atk);
}

void Prepare::gates(const KeyChunk& c, int64_t value_head, Gates& gates) const {
  const Span& span = c.span;
  const ConstTensor& g = p_.in.g;
  std::fill_n(gates.alpha, kChunk, 0.0f);
  if (p_.spec.decay == Decay::kDiag) {
    load_tokens(g, span, value_head, p_.K, gates.alpha_rows, p_.Kp);
    p_.simd.decay_rows(span.fill, p_.Kp, gates.alpha_rows, gates.total_rows);
  } else {
    if (p_.decays && p_.spec.decay == Decay::kScalar) {
      load_scalars(g, span, value_head, 0.0f, gates.alpha);
    } else if (p_.decays && p_.spec.decay == Decay::kConst) {
      std::fill_n(gates.alpha, span.tokens, g.data[value_head * g.stride[0]]);
    }
    gates.total = chunk_decay(gates.alpha);
    p_.simd.exp_rows(kChunk, gates.alpha, gates.alpha);
    if (gates.alpha_rows) {
      std::fill_n(gates.total_rows, p_.Kp, gates.total);
      for (int64_t i = 0; i < span.fill; ++i) std::fill_n(gates.alpha_rows + i * p_.Kp, p_.Kp, gates.alpha[i]);
    }
  }

  if (p_.in.beta) {
    load_scalars(p_.in.beta, span, value_head, 0.0f, gates.beta);
  } else {
    for (int64_t i = 0; i < kChunk; ++i) gates.beta[i] = i < span.tokens ? 1.0f : 0.0f;
  }
  const Gain gain = p_.spec.solve == Solve::kDplr ? Gain::kOne : p_.spec.gain;
  for (int64_t i = 0; i < span.fill; ++i) {
    const float gained = gain == Gain::kBeta  ? gates.beta[i]
                         : gain == Gain::kOne ? (i < span.tokens ? 1.0f : 0.0f)
                                              : gain_of(gain, gates.alpha[i], gates.beta[i], c.m[i]);
    gates.gain[i] = gates.erase[i] = gained;
  }
  if (p_.spec.erase == Erase::kOwnGain) load_scalars(p_.in.beta_erase, span, value_head, 0.0f, gates.erase);
  if (gates.e_rows) {
    p_.simd.scale_rows(span.fill, p_.Kp, gates.erase, c.e, p_.Kp, gates.e_rows, p_.Kp);
    if (p_.erases_decayed) p_.simd.mul_rows(span.fill, p_.Kp, gates.alpha_rows, gates.e_rows, gates.e_rows);
  } else if (p_.erases_decayed) {
    for (int64_t i = 0; i < span.fill; ++i) gates.erase[i] *= gates.alpha[i];
  }
}

}  // namespace deltanet
