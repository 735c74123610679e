#include "nn/views.h"

namespace deltanet::nn {

Arena& layer_scratch() {
  thread_local Arena arena;
  arena.reset();
  return arena;
}

RowSums::RowSums(Arena& scratch, int64_t rows, int64_t n, int64_t width) : rows_(rows), width_(width) {
  constexpr int64_t kElements = 1 << 15;  // in a block, at least
  constexpr int64_t kRows = 64;           // so that adding up the blocks is a small part of the work
  constexpr int64_t kBlocks = 64;
  blocks_ = std::clamp<int64_t>(std::min(rows * n / kElements, rows / kRows), 1, kBlocks);
  data_ = scratch.take_zeros(blocks_ * width_);
}

const float* RowSums::total(int threads) const {
  constexpr int64_t kColumns = 4096;
  parallel_for(threads, (width_ + kColumns - 1) / kColumns, [&](int64_t part) {
    const int64_t end = std::min(width_, (part + 1) * kColumns);
    for (int64_t b = 1; b < blocks_; ++b) {
      const float* block = sums(b);
      for (int64_t i = part * kColumns; i < end; ++i) data_[i] += block[i];
    }
  });
  return data_;
}

}  // namespace deltanet::nn
