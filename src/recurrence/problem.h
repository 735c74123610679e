#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "deltanet/recurrence.h"
#include "recurrence/preconditioners.h"
#include "recurrence/squash.h"
#include "simd/kernels.h"

// What all stages of the engine share: the row, the sizes and padded sizes, and how to find a token's data.

namespace deltanet {

using simd::kChunk;

struct Problem {
  const Spec& spec;
  const Inputs& in;
  const Shape shape;
  const Tensor writes;            // Options::writes
  const bool free_gram_gradient;  // Options::free_gram_gradient
  const simd::Kernels& simd;
  const Preconditioner &key, &query;

  int64_t K, V, Kp, Vp;       // Kp, Vp: padded to whole vectors
  int64_t group;              // value heads per key head
  float scale;                // of q
  bool erases;                // the row has an erase key (online and DPLR)
  bool diagonal;              // the chunk is treated with a decay vector per token
  bool decays;                // the state decays; that of RLS does not, whatever its P forgets
  bool erases_decayed;        // the erase key reads the state after the token's decay: it is multiplied by the decay
  bool own_erase_key;         // the erase key is not k
  simd::SquashCurve curve{};  // squashed preconditioners
  int64_t reads;              // stacked read keys: erase and query, or query alone
  int64_t write_sets;         // write keys per token: 1, or 2 (solved and given) for DPLR unless b = k

  Problem(const Spec& s, const Inputs& inputs, const Shape& sizes, const Options& options)
      : spec(s),
        in(inputs),
        shape(sizes),
        writes(options.writes),
        free_gram_gradient(options.free_gram_gradient),
        simd(simd::kernels()),
        key(definition(s.key)),
        query(definition(s.query)) {
    K = shape.K;
    V = shape.V;
    Kp = simd::padded(K);
    Vp = simd::padded(V);
    group = shape.U / shape.H;
    scale = static_cast<float>(spec.scale ? *spec.scale : 1.0 / std::sqrt(static_cast<double>(K)));
    if (squashes(spec)) curve = squash_curve(spec);
    const bool dplr = spec.solve == Solve::kDplr;
    erases = spec.solve != Solve::kOffline;
    erases_decayed = spec.solve == Solve::kOnline && spec.erase != Erase::kOwnGain;
    decays = spec.decay != Decay::kNone && key.operation != Operation::kRls;
    own_erase_key = dplr || spec.erase == Erase::kFree;
    reads = erases ? 2 : 1;
    write_sets = dplr && spec.tying != Tying::kBEqK ? 2 : 1;
    diagonal = spec.decay == Decay::kDiag || write_sets == 2;
  }

  const Preconditioner& on(Side side) const { return side == Side::kKey ? key : query; }
  bool own_write_key() const { return key.operation != Operation::kNothing; }
  bool has_moment(Side side) const { return on(side).carries == Carried::kMoment; }
  bool has_matrix(Side side) const { return !has_moment(side) && on(side).carries != Carried::kNothing; }
  bool both_blocks() const { return key.operation == Operation::kBlock && query.operation == Operation::kBlock; }
  bool has_moment() const { return has_moment(Side::kKey) || has_moment(Side::kQuery); }
  bool has_matrix() const { return has_matrix(Side::kKey) || has_matrix(Side::kQuery); }
  simd::PrecondKind scan_kind(Side side) const {
    if (!on(side).squashed) {
      return on(side).previous ? simd::PrecondKind::kInversePrevious : simd::PrecondKind::kInverse;
    }
    return spec.squash == Squash::kTanh ? simd::PrecondKind::kStableTanh : simd::PrecondKind::kStableFast;
  }
};

// One sequence: tokens [begin, end) of batch entry `batch`; `index` counts states.
struct Sequence {
  int64_t index, batch, begin, end;
  int64_t length() const { return end - begin; }
};

Sequence sequence_at(const Inputs& in, const Shape& shape, int64_t n);

// Tokens [token, token + tokens) of one batch entry: what a chunk covers. Matrices are filled up to `fill` rows.
struct Span {
  int64_t batch, token, tokens, fill;
};

// Where the tokens of head `head` begin in [B,T,heads,width]; they are stride[1] apart.
inline const float* first_token(const ConstTensor& t, const Span& span, int64_t head) {
  return t.data + span.batch * t.stride[0] + span.token * t.stride[1] + head * t.stride[2];
}

// Copies the tokens of head `head` from [B,T,heads,width] into the rows of a padded matrix, and back. Rows between
// span.tokens and span.fill and the padding become zeros.
void load_tokens(const ConstTensor& source, const Span& span, int64_t head, int64_t width, float* rows, int64_t ld);
void store_tokens(const float* rows, int64_t ld, const Span& span, int64_t head, int64_t width, const Tensor& target);

// Notes the same tokens to be asked for.
void prefetch_tokens(const ConstTensor& source, const Span& span, int64_t head, int64_t width,
                     simd::Prefetcher& prefetcher);

// The same for one value per token, [B,T,heads]; missing tokens become `missing`.
void load_scalars(const ConstTensor& source, const Span& span, int64_t head, float missing, float* values);
void store_scalars(const float* values, const Span& span, int64_t head, const Tensor& target);

// A [rows][columns] matrix at index (n, head) of [N,heads,rows,columns] (or a vector of [N,heads,columns]).
void load_state(const ConstTensor& source, int64_t n, int64_t head, int64_t rows, int64_t columns, float* state,
                int64_t ld);
void store_state(const float* state, int64_t ld, int64_t n, int64_t head, int64_t rows, int64_t columns,
                 const Tensor& target);

// The same for S, with the state transposed: [columns][ld].
void load_transposed(const ConstTensor& source, int64_t n, int64_t head, int64_t rows, int64_t columns, float* state,
                     int64_t ld);
void store_transposed(const float* state, int64_t ld, int64_t n, int64_t head, int64_t rows, int64_t columns,
                      const Tensor& target);

// The same tensor without its first columns.
template <class View>
View columns_from(View t, int64_t first) {
  if (t.data) t.data += first * t.stride[t.rank - 1];
  return t;
}

}  // namespace deltanet
