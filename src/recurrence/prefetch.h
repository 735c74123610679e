#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "recurrence/problem.h"

namespace deltanet {

// Asks for the rows of the next chunk while this one is computed. In [B,T,H,D] the rows of one head are H*D floats apart,
// usually in different pages, where the hardware's prefetcher does not follow; waiting for them would cost a quarter of
// the forward pass. The requests are spread over the kernels of a chunk because only a few can be under way at once.
class Prefetcher {
 public:
  void clear() {
    rows_.clear();
    next_ = 0;
    offset_ = 0;
  }

  void add(const Tensor& t, const Span& span, int64_t head, int64_t columns) {
    if (!t || t.rank != 4 || t.stride[3] != 1) return;
    for (int64_t r = 0; r < span.rows; ++r) {
      const float* row = t.data + span.batch * t.stride[0] + (span.token + r) * t.stride[1] + head * t.stride[2];
      rows_.push_back({row, columns});
    }
  }

  // Spreads what was added over about `calls` calls of some().
  void plan(int64_t calls) {
    int64_t lines = 0;
    for (const Row& row : rows_) lines += (row.columns + kLine - 1) / kLine;
    lines_per_call_ = lines / calls + 1;
  }

  void some() {
    for (int64_t i = 0; i < lines_per_call_ && next_ < rows_.size(); ++i) {
      const Row& row = rows_[next_];
      __builtin_prefetch(row.data + offset_, 0, 2);
      offset_ += kLine;
      if (offset_ >= row.columns) {
        offset_ = 0;
        ++next_;
      }
    }
  }

 private:
  static constexpr int64_t kLine = 16;  // floats in a cache line
  struct Row {
    const float* data;
    int64_t columns;
  };
  std::vector<Row> rows_;
  size_t next_ = 0;
  int64_t offset_ = 0;
  int64_t lines_per_call_ = 0;
};

}  // namespace deltanet
