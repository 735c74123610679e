#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "nn/attention/attention.h"
#include "simd/kernels.h"

// What the forward and the backward pass of attention share: blocks of tokens, and copies of them that are padded as
// the kernels want them. Not for other files.

namespace deltanet::nn {

// Tokens. Key blocks start at multiples of kKeyBlock from the start of the sequence, whoever asks: the order of a
// query's sums does not depend on its block.
inline constexpr int64_t kKeyBlock = 64;
inline constexpr int64_t kQueryBlock = 64;
// Queries, over all heads of a group, that share one copy of a key block: enough to pay for it.
inline constexpr int64_t kSharedQueries = 512;
inline constexpr int64_t kScoreStride = simd::panel_stride(kQueryBlock);

inline constexpr float kLog2e = 1.44269504088896341f;
inline constexpr float kLn2 = 0.693147180559945309f;

// Throws Error for arguments that make no sense; `operation` names the caller.
void check_attention(std::string_view operation, const Attention& in);

struct AttentionSizes {
  explicit AttentionSizes(const Attention& in);
  int64_t group;  // query heads for each key head
  int64_t queries_per_task;
  int64_t D, Dp;   // head dimension, padded
  int64_t window;  // endless if there is none
  float scale, scale2;
};

// Queries [first, first + count) of one sequence, counted from its first token ever. `token` is where the first is
// among those of the call.
struct QueryBlock {
  int64_t first, count, token;
  int64_t columns() const { return simd::padded(count); }
  int64_t last() const { return first + count - 1; }
};

// Cut at the multiples of `size` of their positions, so that few key blocks cross the diagonal: the first part, what
// comes after it, and all parts.
QueryBlock first_part(const QueryBlock& queries, int64_t size);
QueryBlock after(const QueryBlock& queries, const QueryBlock& part);
std::vector<QueryBlock> split(QueryBlock queries, int64_t size);

// Keys [first, first + count), of which any query sees those from first_seen on; earlier ones may be gone.
struct KeyBlock {
  int64_t first, count, first_seen;
};

// The blocks of all keys that some of the queries see.
std::vector<KeyBlock> seen_keys(const AttentionSizes& sizes, const QueryBlock& queries);
// How many rows of one of them are enough for a part of the queries; 0: it sees none of them.
int64_t rows_seen(const AttentionSizes& sizes, const QueryBlock& part, const KeyBlock& keys);

// How the kernels mask the scores of the two blocks.
simd::ScoreBlock score_block(const AttentionSizes& sizes, const QueryBlock& queries, const KeyBlock& keys,
                             int64_t key_rows, float* scores);

// y [padded(rows)][Dp] = x [rows][D], padding zero; and back, multiplied by a factor.
void pack_rows(const float* x, int64_t ldx, int64_t rows, int64_t D, float* y);
void unpack_rows(const float* x, int64_t rows, int64_t D, float factor, float* y, int64_t ldy);

// Keys and values of one head of one sequence: from the cache, then from the tokens of this call.
struct KeySource {
  const Attention& in;
  int64_t sequence, head;

  int64_t past() const { return in.past ? in.past->sequences[static_cast<std::size_t>(sequence)].length : 0; }
  // k, v [padded(count)][Dp]; what is not seen is zero.
  void pack(const KeyBlock& keys, float* k, float* v) const;
};

}  // namespace deltanet::nn
