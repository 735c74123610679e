#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace deltanet::simd {

// Asks for the rows of the next chunk while this one is computed. In [B,T,H,D] the rows of one head are H*D floats
// apart, usually in different pages, where the hardware's prefetcher does not follow; waiting for them would cost a
// quarter of the forward pass. Only some twenty requests can be under way at once, and one more makes the processor
// wait: a product therefore makes a few of them after each of its tiles rather than all at its start.
class Prefetcher {
 public:
  void clear() {
    rows_.clear();
    next_ = 0;
  }

  void add(const float* row, int64_t columns) {
    // Whole cache lines: a row need not start at one, and then it ends in one more.
    const uintptr_t first = reinterpret_cast<uintptr_t>(row) / kLine * kLine;
    rows_.push_back({first, reinterpret_cast<uintptr_t>(row + columns)});
  }

  // Spreads what is left over `products` products, each of which asks for per_product() rows between its tiles.
  void plan(int64_t products) { per_product_ = (left() + products - 1) / products; }
  int64_t per_product() const { return per_product_; }

  void ask(int64_t rows) {
    const Row* row = rows_.data() + next_;
    const Row* const end = row + std::min(rows, left());
    next_ += end - row;
    for (; row < end; ++row) {
      for (uintptr_t line = row->first; line < row->end; line += kLine) {
        __builtin_prefetch(reinterpret_cast<const void*>(line), 0, 2);
      }
    }
  }

  void ask_all() { ask(left()); }

 private:
  static constexpr uintptr_t kLine = 64;
  struct Row {
    uintptr_t first, end;
  };

  int64_t left() const { return static_cast<int64_t>(rows_.size()) - next_; }

  std::vector<Row> rows_;
  int64_t next_ = 0;
  int64_t per_product_ = 0;
};

}  // namespace deltanet::simd
