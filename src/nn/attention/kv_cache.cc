#include "nn/attention/kv_cache.h"

#include <algorithm>
#include <string>
#include <utility>

#include "deltanet/error.h"
#include "nn/packed.h"
#include "simd/kernels.h"

namespace deltanet::nn {
namespace {

constexpr int64_t kSmallestCapacity = 64;  // tokens

// Room for `length` tokens. Only a cache that has not wrapped grows, so every token keeps its slot number.
void reserve(const KvCache& cache, KvCache::Sequence& sequence, int64_t length) {
  const int64_t limit = cache.window > 0 ? cache.window : length;
  if (std::min(length, limit) <= sequence.capacity) return;
  int64_t capacity = std::max({length, 2 * sequence.capacity, kSmallestCapacity});
  if (cache.window > 0) capacity = std::min(capacity, cache.window);
  const int64_t Dp = simd::padded(cache.head_dim);
  const auto grow = [&](std::vector<float>& rows) {
    std::vector<float> grown(static_cast<std::size_t>(cache.key_heads * capacity * Dp));
    for (int64_t head = 0; head < cache.key_heads; ++head) {
      std::copy_n(rows.begin() + head * sequence.capacity * Dp, std::min(sequence.length, sequence.capacity) * Dp,
                  grown.begin() + head * capacity * Dp);
    }
    rows = std::move(grown);
  };
  grow(sequence.k);
  grow(sequence.v);
  sequence.capacity = capacity;
}

}  // namespace

KvCache::KvCache(int64_t sequence_count, int64_t heads, int64_t dim, int64_t kept_window)
    : key_heads(heads), head_dim(dim), window(kept_window) {
  if (sequence_count < 0 || key_heads <= 0 || head_dim <= 0 || window < 0)
    throw Error("[kv_cache] shape: given " + std::to_string(sequence_count) + " sequences, " +
                std::to_string(key_heads) + " heads of " + std::to_string(head_dim) + ", window " +
                std::to_string(window) + "; expected heads and dimensions above 0, nothing negative");
  sequences.resize(static_cast<std::size_t>(sequence_count));
}

void KvCache::append(std::span<const int64_t> offsets, const float* k, int64_t ldk, const float* v, int64_t ldv) {
  check_offsets("kv_cache", offsets);
  if (offsets.size() != sequences.size() + 1)
    throw Error("[kv_cache] offsets: given " + std::to_string(offsets.size()) + " entries; expected " +
                std::to_string(sequences.size() + 1));
  for (std::size_t n = 0; n < sequences.size(); ++n) {
    Sequence& sequence = sequences[n];
    const int64_t end = sequence.length + offsets[n + 1] - offsets[n];
    reserve(*this, sequence, end);
    // A token that this very call would push out again is not written at all.
    const int64_t begin = window > 0 ? std::max(sequence.length, end - window) : sequence.length;
    for (int64_t position = begin; position < end; ++position) {
      const int64_t from = offsets[n] + position - sequence.length;
      for (int64_t head = 0; head < key_heads; ++head) {
        const int64_t to = row(static_cast<int64_t>(n), head, position);
        std::copy_n(k + from * ldk + head * head_dim, head_dim, sequence.k.begin() + to);
        std::copy_n(v + from * ldv + head * head_dim, head_dim, sequence.v.begin() + to);
      }
    }
    sequence.length = end;
  }
}

void KvCache::clear(int64_t n) { sequences[static_cast<std::size_t>(n)] = {}; }

bool KvCache::restore(int64_t n, int64_t length, int64_t capacity, std::vector<float> k, std::vector<float> v) {
  const auto rows = static_cast<int64_t>(k.size()) / (key_heads * simd::padded(head_dim));
  constexpr int64_t kLongest = int64_t{1} << 48;  // tokens: nothing overflows below
  const bool fits = length >= 0 && length <= kLongest && capacity == rows &&
                    rows * key_heads * simd::padded(head_dim) == static_cast<int64_t>(k.size()) &&
                    v.size() == k.size() && (window > 0 ? capacity <= window : length <= capacity) &&
                    (length <= capacity || capacity == window);
  if (fits) sequences[static_cast<std::size_t>(n)] = {length, capacity, std::move(k), std::move(v)};
  return fits;
}

int64_t KvCache::row(int64_t n, int64_t head, int64_t position) const {
  const int64_t capacity = sequences[static_cast<std::size_t>(n)].capacity;
  return (head * capacity + position % capacity) * simd::padded(head_dim);
}

int64_t KvCache::contiguous(int64_t n, int64_t position) const {
  const Sequence& sequence = sequences[static_cast<std::size_t>(n)];
  return std::min(sequence.length - position, sequence.capacity - position % sequence.capacity);
}

int64_t KvCache::bytes() const {
  std::size_t floats = 0;
  for (const Sequence& sequence : sequences) floats += sequence.k.size() + sequence.v.size();
  return static_cast<int64_t>(floats * sizeof(float));
}

}  // namespace deltanet::nn
