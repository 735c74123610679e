#include "nn/factor.h"

#include <algorithm>
#include <array>
#include <vector>

#include "simd/kernels.h"

namespace deltanet::nn {
namespace {

// The calling thread keeps them.
float* row_buffer(int slot, int64_t floats) {
  constexpr int kSlots = 3;
  thread_local std::array<std::vector<float>, kSlots> buffers;
  std::vector<float>& buffer = buffers.at(slot);
  if (static_cast<int64_t>(buffer.size()) < floats) buffer.resize(floats);
  return buffer.data();
}

}  // namespace

FactorRows::FactorRows(const Factor& target, int64_t count, int64_t n, int slot)
    : target_(target), count_(count), n_(n), rows_{target.wide, target.ld} {
  if (target.narrow) rows_ = {row_buffer(slot, count * n), n};
}

void FactorRows::finish() const {
  if (!target_.narrow) return;
  for (int64_t row = 0; row < count_; ++row) copy_row(n_, rows_.row(row), target_.from(row));
}

void copy_row(int64_t n, const float* x, const Factor& y) {
  if (y.wide) {
    std::copy_n(x, n, y.wide);
  } else {
    simd::kernels().convert.scaled_to_bf16(n, 1.0f, x, y.narrow);
  }
}

void copy_rows(int64_t rows, int64_t n, ConstView x, const Factor& y, int threads) {
  for_row_blocks(rows, n, threads, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) copy_row(n, x.row(row), y.from(row));
  });
}

}  // namespace deltanet::nn
