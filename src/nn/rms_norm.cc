#include "nn/rms_norm.h"

#include "simd/kernels.h"

namespace deltanet::nn {

void rms_norm_forward(int64_t rows, int64_t n, float eps, ConstView x, const float* w, const Factor& y, float* rstd,
                      int threads) {
  const auto& kernels = simd::kernels().layers;
  for_factor_blocks(rows, n, threads, y, [&](int64_t begin, int64_t end, View out) {
    kernels.rms_norm(end - begin, n, eps, x.from(begin), w, out, rstd ? rstd + begin : nullptr);
  });
}

void add_rms_norm_forward(int64_t rows, int64_t n, float eps, ConstView h, ConstView r, const float* w, View sum,
                          const Factor& y, float* rstd, int threads) {
  const auto& kernels = simd::kernels().layers;
  for_factor_blocks(rows, n, threads, y, [&](int64_t begin, int64_t end, View out) {
    kernels.add_rms_norm(end - begin, n, eps, h.from(begin), r.from(begin), w, sum.from(begin), out,
                         rstd ? rstd + begin : nullptr);
  });
}

void rms_norm_apply(int64_t rows, int64_t n, ConstView x, const float* rstd, const float* w, const Factor& y,
                    int threads) {
  const auto& kernels = simd::kernels().layers;
  for_factor_blocks(rows, n, threads, y, [&](int64_t begin, int64_t end, View out) {
    kernels.rms_norm_apply(end - begin, n, x.from(begin), rstd + begin, w, out);
  });
}

void rms_norm_backward(int64_t rows, int64_t n, ConstView x, const float* rstd, const float* w, ConstView dy, View dx,
                       float* dw, int threads) {
  const auto& kernels = simd::kernels().layers;
  if (!w || !dw) {
    for_row_blocks(rows, n, threads, [&](int64_t begin, int64_t end) {
      kernels.rms_norm_grad(end - begin, n, x.from(begin), rstd + begin, w, dy.from(begin), dx.from(begin), nullptr);
    });
    return;
  }
  const RowSums blocks(layer_scratch(), rows, n, n);
  blocks.for_blocks(threads, [&](int64_t begin, int64_t end, float* sums) {
    kernels.rms_norm_grad(end - begin, n, x.from(begin), rstd + begin, w, dy.from(begin), dx.from(begin), sums);
  });
  const float* total = blocks.total(threads);
  for (int64_t i = 0; i < n; ++i) dw[i] += total[i];
}

}  // namespace deltanet::nn
