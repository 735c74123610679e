#pragma once

#include "nn/views.h"

namespace deltanet::nn {

// The factor [rows, n] of a product, one row per token, in the type that the product takes: float32, or bfloat16 where
// it would round float32 itself (factor_for in linear.h). A layer whose result is such a factor rounds it while it is
// in the cache.
template <class Float, class Bfloat16>
struct BasicFactor {
  Float* wide = nullptr;  // one of the two, or none
  Bfloat16* narrow = nullptr;
  int64_t ld = 0;

  BasicFactor() = default;
  BasicFactor(Float* data, int64_t row_distance) : wide(data), ld(row_distance) {}
  BasicFactor(Bfloat16* data, int64_t row_distance) : narrow(data), ld(row_distance) {}

  const void* data() const { return narrow ? static_cast<const void*>(narrow) : wide; }
  BasicFactor from(int64_t row, int64_t column = 0) const {
    BasicFactor part = *this;
    if (wide) part.wide += row * ld + column;
    if (narrow) part.narrow += row * ld + column;
    return part;
  }
};

struct Factor : BasicFactor<float, uint16_t> {
  using BasicFactor::BasicFactor;
  Factor(const View& rows) : BasicFactor(rows.data, rows.ld) {}
  Factor(const BasicFactor& other) : BasicFactor(other) {}
};

struct ConstFactor : BasicFactor<const float, const uint16_t> {
  using BasicFactor::BasicFactor;
  ConstFactor(const Factor& other) {
    wide = other.wide;
    narrow = other.narrow;
    ld = other.ld;
  }
  ConstFactor(const BasicFactor& other) : BasicFactor(other) {}
};

// Row distance of a bfloat16 factor: rows that are 4 KiB apart would share cache sets. The memory of a float32 factor
// suffices for it, whatever n.
constexpr int64_t narrow_ld(int64_t n) {
  constexpr int64_t kGap = 32;
  return n < kGap ? n : n + kGap;
}

// y = x, rounded if y is narrow.
void copy_row(int64_t n, const float* x, const Factor& y);
void copy_rows(int64_t rows, int64_t n, ConstView x, const Factor& y, int threads);

// Where a layer writes `count` rows of a factor, as floats: there, or in a buffer that finish() rounds from.
class FactorRows {
 public:
  // A thread writes to several factors at a time with different slots.
  FactorRows(const Factor& target, int64_t count, int64_t n, int slot = 0);

  const View& rows() const { return rows_; }
  void finish() const;

 private:
  const Factor target_;
  const int64_t count_, n_;
  View rows_;
};

// How many rows to write before they are rounded: they should be in the first-level cache still.
inline int64_t rows_before_rounding(const Factor& y, int64_t rows, int64_t n) {
  constexpr int64_t kElements = 2048;
  return y.narrow ? std::clamp<int64_t>(kElements / std::max<int64_t>(1, n), 1, rows) : rows;
}

// Calls body(begin, end, y) for blocks of rows as for_row_blocks does, with rows of y to write floats to.
template <class Body>
void for_factor_blocks(int64_t rows, int64_t n, int threads, const Factor& y, const Body& body) {
  for_row_blocks(rows, n, threads, [&](int64_t begin, int64_t end) {
    const int64_t step = rows_before_rounding(y, end - begin, n);
    for (int64_t row = begin; row < end; row += step) {
      const int64_t count = std::min(step, end - row);
      const FactorRows target(y.from(row), count, n);
      body(row, row + count, target.rows());
      target.finish();
    }
  });
}

}  // namespace deltanet::nn
