#pragma once

#include <algorithm>
#include <cstdint>

#include "base/arena.h"
#include "base/parallel.h"
#include "simd/layers.h"

// What the layers share. Activations are matrices [rows, n], one row per token, given as View or ConstView: slices of
// wider matrices. Layers come in pairs: *_forward, and *_backward that sets or adds to gradients as its comment says.
// A result may be the same matrix as an input only where a comment says so. `threads` as in parallel_for; the bits of a
// result do not depend on it. Sizes are checked by the callers.

namespace deltanet::nn {

using simd::ConstView;
using simd::View;

// Row distance of the float32 matrices that are factors and results of the large products: rows that are a large power
// of two apart would share few cache sets. An odd number of cache lines spreads them over all.
constexpr int64_t wide_ld(int64_t n) {
  constexpr int64_t kLine = 16, kShort = 64;
  return n < kShort ? n : ((n + kLine - 1) / kLine | 1) * kLine;
}

// Calls body(begin, end) for blocks of rows. A block holds enough work to be worth handing to a thread, so that a few
// tokens, as in decoding, stay on the calling one.
template <class Body>
void for_row_blocks(int64_t rows, int64_t n, int threads, const Body& body) {
  constexpr int64_t kElements = 1 << 14;
  const int64_t block = std::max<int64_t>(1, kElements / std::max<int64_t>(1, n));
  parallel_for(threads, (rows + block - 1) / block,
               [&](int64_t b) { body(b * block, std::min(rows, (b + 1) * block)); });
}

// Scratch of the calling thread for the length of one layer call; empty again at the next call of this function. The
// thread keeps the memory.
Arena& layer_scratch();

// Sums over rows, such as gradients of weights, with the same bits for any number of threads: the rows are cut into
// blocks that depend on the shape alone, each block has its own sums, and these are added in the order of the blocks.
class RowSums {
 public:
  // n: values per row, which decide the size of the blocks; width: how many sums
  RowSums(Arena& scratch, int64_t rows, int64_t n, int64_t width);

  int64_t blocks() const { return blocks_; }
  int64_t begin(int64_t block) const { return rows_ * block / blocks_; }
  int64_t end(int64_t block) const { return begin(block + 1); }
  float* sums(int64_t block) const { return data_ + block * width_; }  // [width], zeros at first

  // Calls body(begin, end, sums) for every block.
  template <class Body>
  void for_blocks(int threads, const Body& body) const {
    parallel_for(threads, blocks_, [&](int64_t b) { body(begin(b), end(b), sums(b)); });
  }

  const float* total(int threads) const;  // [width]; call once, after all blocks

 private:
  int64_t rows_, width_, blocks_;
  float* data_;
};

}  // namespace deltanet::nn
