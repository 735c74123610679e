#include "nn/quantize.h"

#include <algorithm>

#include "base/parallel.h"
#include "simd/kernels.h"

namespace deltanet::nn {
namespace {

constexpr int64_t kItem = 1 << 18;  // elements that are worth handing to a thread

}  // namespace

void to_bfloat16(const float* w, int64_t rows, int64_t columns, uint16_t* narrow, int threads) {
  parallel_blocks(threads, rows * columns, kItem, [&](int64_t begin, int64_t end) {
    simd::kernels().convert.f32_to_bf16(end - begin, w + begin, narrow + begin);
  });
}

void to_int8(const float* w, int64_t rows, int64_t columns, int8_t* q, float* scale, int threads) {
  const int64_t block = std::max<int64_t>(1, kItem / std::max<int64_t>(1, columns));
  parallel_blocks(threads, rows, block, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      scale[r] = simd::kernels().narrow.to_int8(columns, w + r * columns, q + r * columns);
    }
  });
}

void to_float32(const Weight& w, float* values, int threads) {
  const simd::Kernels& kernels = simd::kernels();
  const int64_t block = std::max<int64_t>(1, kItem / std::max<int64_t>(1, w.in));
  parallel_blocks(threads, w.out, block, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r * w.in;
      switch (w.type) {
        case WeightType::kFloat32:
          std::copy_n(static_cast<const float*>(w.data) + at, w.in, values + at);
          break;
        case WeightType::kBfloat16:
          kernels.convert.bf16_to_f32(w.in, static_cast<const uint16_t*>(w.data) + at, values + at);
          break;
        case WeightType::kInt8:
          kernels.narrow.from_int8(w.in, w.scale[r], static_cast<const int8_t*>(w.data) + at, values + at);
          break;
      }
    }
  });
}

}  // namespace deltanet::nn
