#pragma once

#include <cstdint>
#include <vector>

#include "recurrence/problem.h"

namespace deltanet {

// Asks for the rows of the next chunk while this one is computed. In [B,T,H,D] the rows of one head are H*D floats
// apart, usually in different pages, where the hardware's prefetcher does not follow; waiting for them would cost a
// quarter of the forward pass. The requests are spread over the kernels of a chunk because only a few can be under way
// at once.
class Prefetcher {
 public:
  void clear() {
    rows_.clear();
    current_ = 0;
  }

  void add(const Tensor& t, const Span& span, int64_t head, int64_t columns) {
    if (!t || t.rank != 4 || t.stride[3] != 1) return;
    for (int64_t r = 0; r < span.rows; ++r) {
      const float* row = t.data + span.batch * t.stride[0] + (span.token + r) * t.stride[1] + head * t.stride[2];
      // Whole cache lines: a row need not start at one, and then it ends in one more.
      const uintptr_t first = reinterpret_cast<uintptr_t>(row) / kLine * kLine;
      rows_.push_back({first, reinterpret_cast<uintptr_t>(row + columns)});
    }
  }

  // Spreads what is left over about `calls` calls of some().
  void plan(int64_t calls) {
    int64_t lines = 0;
    for (size_t i = current_; i < rows_.size(); ++i) {
      lines += static_cast<int64_t>((rows_[i].end - rows_[i].next + kLine - 1) / kLine);
    }
    lines_per_call_ = lines / calls + 1;
  }

  void some() {
    for (int64_t i = 0; i < lines_per_call_ && current_ < rows_.size(); ++i) {
      Row& row = rows_[current_];
      __builtin_prefetch(reinterpret_cast<const void*>(row.next), 0, 2);
      row.next += kLine;
      if (row.next >= row.end) ++current_;
    }
  }

 private:
  static constexpr uintptr_t kLine = 64;
  struct Row {
    uintptr_t next, end;
  };
  std::vector<Row> rows_;
  size_t current_ = 0;
  int64_t lines_per_call_ = 0;
};

}  // namespace deltanet
