#include "nn/attention/attention_blocks.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "deltanet/error.h"
#include "nn/packed.h"

namespace deltanet::nn {
namespace {

std::string text(int64_t number) { return std::to_string(number); }

[[noreturn]] void fail(std::string_view operation, const std::string& what) {
  throw Error("[" + std::string(operation) + "] " + what);
}

void check_past(std::string_view operation, const Attention& in) {
  const KvCache& past = *in.past;
  if (past.sequences.size() + 1 != in.offsets.size())
    fail(operation, "past: has " + std::to_string(past.sequences.size()) + " sequences; expected " +
                        std::to_string(in.offsets.size() - 1));
  if (past.key_heads != in.key_heads || past.head_dim != in.head_dim)
    fail(operation, "past: has " + text(past.key_heads) + " heads of " + text(past.head_dim) + "; expected " +
                        text(in.key_heads) + " of " + text(in.head_dim));
  // A longer memory than the window serves as well; a shorter one has lost keys.
  if (past.window > 0 && (in.window == 0 || in.window > past.window))
    fail(operation, "past: keeps a window of " + text(past.window) + "; expected at least " +
                        (in.window == 0 ? "all tokens" : text(in.window)));
}

void copy_rows(const float* x, int64_t ldx, int64_t rows, int64_t D, float* y) {
  const int64_t Dp = simd::padded(D);
  for (int64_t i = 0; i < rows; ++i) {
    std::copy_n(x + i * ldx, D, y + i * Dp);
    std::fill(y + i * Dp + D, y + (i + 1) * Dp, 0.0f);
  }
}

}  // namespace

void check_attention(std::string_view operation, const Attention& in) {
  if (in.query_heads <= 0 || in.key_heads <= 0 || in.query_heads % in.key_heads != 0)
    fail(operation, "heads: given " + text(in.query_heads) + " query heads for " + text(in.key_heads) +
                        " key heads; expected a multiple");
  if (in.head_dim <= 0) fail(operation, "head_dim: given " + text(in.head_dim) + "; expected a number above 0");
  if (in.window < 0) fail(operation, "window: given " + text(in.window) + "; expected 0 (none) or more");
  check_offsets(operation, in.offsets);
  const auto check_rows = [&](const std::string& name, const float* data, int64_t ld, int64_t heads) {
    if (in.offsets.back() > 0 && !data) fail(operation, name + ": not given; expected " + text(heads) + " heads");
    if (ld < heads * in.head_dim)
      fail(operation, name + ": has rows " + text(ld) + " apart; expected at least " + text(heads * in.head_dim));
  };
  check_rows("q", in.q, in.ldq, in.query_heads);
  check_rows("k", in.k, in.ldk, in.key_heads);
  check_rows("v", in.v, in.ldv, in.key_heads);
  if (in.past) check_past(operation, in);
}

AttentionSizes::AttentionSizes(const Attention& in)
    : group(in.query_heads / in.key_heads),
      queries_per_task(std::max<int64_t>(1, kSharedQueries / (group * kQueryBlock)) * kQueryBlock),
      D(in.head_dim),
      Dp(simd::padded(in.head_dim)),
      window(in.window > 0 ? in.window : std::numeric_limits<int64_t>::max() / 2),
      scale(static_cast<float>(1.0 / std::sqrt(static_cast<double>(in.head_dim)))),
      scale2(scale * kLog2e) {}

QueryBlock first_part(const QueryBlock& queries, int64_t size) {
  return {queries.first, std::min(queries.count, size - queries.first % size), queries.token};
}

QueryBlock after(const QueryBlock& queries, const QueryBlock& part) {
  return {queries.first + part.count, queries.count - part.count, queries.token + part.count};
}

std::vector<QueryBlock> split(QueryBlock queries, int64_t size) {
  std::vector<QueryBlock> parts;
  for (; queries.count > 0; queries = after(queries, parts.back())) parts.push_back(first_part(queries, size));
  return parts;
}

std::vector<KeyBlock> seen_keys(const AttentionSizes& sizes, const QueryBlock& queries) {
  const int64_t seen = std::max<int64_t>(0, queries.first - sizes.window + 1);
  std::vector<KeyBlock> blocks;
  for (int64_t first = seen / kKeyBlock * kKeyBlock; first <= queries.last(); first += kKeyBlock) {
    blocks.push_back({first, std::min(kKeyBlock, queries.last() + 1 - first), std::max(seen, first)});
  }
  return blocks;
}

int64_t rows_seen(const AttentionSizes& sizes, const QueryBlock& part, const KeyBlock& keys) {
  if (keys.first + keys.count <= part.first - sizes.window + 1) return 0;
  return std::clamp<int64_t>(part.last() + 1 - keys.first, 0, keys.count);
}

simd::ScoreBlock score_block(const AttentionSizes& sizes, const QueryBlock& queries, const KeyBlock& keys,
                             int64_t key_rows, float* scores) {
  return {.keys = key_rows,
          .n = queries.columns(),
          .scores = scores,
          .ld = kScoreStride,
          .scale2 = sizes.scale2,
          .first = keys.first - queries.first,
          .window = sizes.window};
}

void pack_rows(const float* x, int64_t ldx, int64_t rows, int64_t D, float* y) {
  copy_rows(x, ldx, rows, D, y);
  const int64_t Dp = simd::padded(D);
  std::fill(y + rows * Dp, y + simd::padded(rows) * Dp, 0.0f);
}

void unpack_rows(const float* x, int64_t rows, int64_t D, float factor, float* y, int64_t ldy) {
  const int64_t Dp = simd::padded(D);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t d = 0; d < D; ++d) y[i * ldy + d] = factor * x[i * Dp + d];
  }
}

void KeySource::pack(const KeyBlock& keys, float* k, float* v) const {
  const int64_t D = in.head_dim, Dp = simd::padded(D);
  const auto zero_rows = [&](int64_t begin, int64_t end) {
    std::fill(k + begin * Dp, k + end * Dp, 0.0f);
    std::fill(v + begin * Dp, v + end * Dp, 0.0f);
  };
  int64_t at = keys.first_seen - keys.first;  // row of the copies
  zero_rows(0, at);
  const int64_t cached_rows = std::min(keys.count, past() - keys.first);
  while (at < cached_rows) {
    const int64_t rows = std::min(cached_rows - at, in.past->contiguous(sequence, keys.first + at));
    const int64_t from = in.past->row(sequence, head, keys.first + at);
    const KvCache::Sequence& cached = in.past->sequences[static_cast<std::size_t>(sequence)];
    std::copy_n(cached.k.data() + from, rows * Dp, k + at * Dp);
    std::copy_n(cached.v.data() + from, rows * Dp, v + at * Dp);
    at += rows;
  }
  if (at < keys.count) {
    const int64_t token = in.offsets[static_cast<std::size_t>(sequence)] + keys.first + at - past();
    copy_rows(in.k + token * in.ldk + head * D, in.ldk, keys.count - at, D, k + at * Dp);
    copy_rows(in.v + token * in.ldv + head * D, in.ldv, keys.count - at, D, v + at * Dp);
  }
  zero_rows(keys.count, simd::padded(keys.count));
}

}  // namespace deltanet::nn
