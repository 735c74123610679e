#include "nn/gated_norm.h"

#include <cassert>

#include "simd/kernels.h"

namespace deltanet::nn {
namespace {

simd::GatedNorm block_of(const GatedNorm& norm, int64_t begin, int64_t end, ConstView o, ConstView gate) {
  assert(norm.activation == GateActivation::kNone || gate.data);
  return {end - begin, norm.heads, norm.V, norm.activation, o.from(begin), gate.data ? gate.from(begin) : gate, norm.w};
}

}  // namespace

void gated_norm_forward(const GatedNorm& norm, int64_t rows, ConstView o, ConstView gate, const Factor& y, float* rstd,
                        int threads) {
  const auto& kernels = simd::kernels().layers;
  for_factor_blocks(rows, norm.heads * norm.V, threads, y, [&](int64_t begin, int64_t end, View out) {
    kernels.gated_norm(block_of(norm, begin, end, o, gate), norm.eps, out, rstd ? rstd + begin * norm.heads : nullptr);
  });
}

void gated_norm_backward(const GatedNorm& norm, int64_t rows, ConstView o, ConstView gate, const float* rstd,
                         ConstView dy, View d_o, View dgate, float* dw, int threads) {
  const auto& kernels = simd::kernels().layers;
  const RowSums blocks(layer_scratch(), rows, norm.heads * norm.V, norm.V);
  blocks.for_blocks(threads, [&](int64_t begin, int64_t end, float* sums) {
    kernels.gated_norm_grad({block_of(norm, begin, end, o, gate), rstd + begin * norm.heads, dy.from(begin),
                             d_o.from(begin), dgate.data ? dgate.from(begin) : dgate, dw ? sums : nullptr});
  });
  if (!dw) return;
  const float* total = blocks.total(threads);
  for (int64_t i = 0; i < norm.V; ++i) dw[i] += total[i];
}

}  // namespace deltanet::nn
