#include "nn/factor.h"

#include <algorithm>
#include <array>

#include "simd/kernels.h"

namespace deltanet::nn {

float* row_buffer(int slot, int64_t floats) {
  constexpr int kSlots = 3;
  thread_local std::array<std::vector<float>, kSlots> buffers;
  std::vector<float>& buffer = buffers.at(slot);
  if (static_cast<int64_t>(buffer.size()) < floats) buffer.resize(floats);
  return buffer.data();
}

void FactorRows::finish() const {
  if (!target_.narrow) return;
  for (int64_t row = 0; row < count_; ++row) {
    simd::kernels().convert.f32_to_bf16(n_, rows_.data + row * rows_.ld, target_.narrow + row * target_.ld);
  }
}

void copy_rows(int64_t rows, int64_t n, ConstRows x, const Factor& y, int threads) {
  for_row_blocks(rows, n, threads, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      if (y.wide) {
        std::copy_n(x.data + row * x.ld, n, y.wide + row * y.ld);
      } else {
        simd::kernels().convert.f32_to_bf16(n, x.data + row * x.ld, y.narrow + row * y.ld);
      }
    }
  });
}

}  // namespace deltanet::nn
