#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace deltanet::nn {

// Keys (after RoPE) and values of the tokens that N sequences have seen, for one attention layer. Without a window the
// memory of a sequence doubles as it grows. With one it stops at `window` tokens, which then form a ring. Copying the
// struct copies the state; its members are all there is to store.
struct KvCache {
  struct Sequence {
    int64_t length = 0;       // tokens seen
    int64_t capacity = 0;     // tokens that k and v have room for
    std::vector<float> k, v;  // [key_heads, capacity, padded head_dim]; token at position p in slot p % capacity
  };

  int64_t key_heads = 0, head_dim = 0;
  int64_t window = 0;  // 0: all tokens
  std::vector<Sequence> sequences;

  KvCache() = default;
  KvCache(int64_t sequence_count, int64_t heads, int64_t dim, int64_t kept_window);

  // Adds the tokens [offsets[n], offsets[n+1]) of k and v [T, key_heads, head_dim] to each sequence n.
  void append(std::span<const int64_t> offsets, const float* k, int64_t ldk, const float* v, int64_t ldv);

  // Forgets the tokens of one sequence, so that another can take its place.
  void clear(int64_t n);

  // Puts back what was stored of sequence n; false, and nothing changes, if the sizes contradict each other.
  bool restore(int64_t n, int64_t length, int64_t capacity, std::vector<float> k, std::vector<float> v);

  // The padded row of a token that is still kept, inside k or v; the rows of the following positions lie behind it as
  // far as `contiguous` says.
  int64_t row(int64_t n, int64_t head, int64_t position) const;
  int64_t contiguous(int64_t n, int64_t position) const;

  int64_t bytes() const;
};

}  // namespace deltanet::nn
