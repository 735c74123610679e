#include "nn/gates.h"

#include <cassert>
#include <cmath>

#include "simd/kernels.h"

namespace deltanet::nn {
namespace {

// exp(A_log) for every column.
const float* rates_of(const DecayGate& gate, Arena& scratch) {
  assert(gate.heads > 0 && gate.n % gate.heads == 0);
  const int64_t per_head = gate.n / gate.heads;
  float* rates = scratch.take(gate.n);
  for (int64_t head = 0; head < gate.heads; ++head) {
    std::fill_n(rates + head * per_head, per_head, std::exp(gate.A_log[head]));
  }
  return rates;
}

}  // namespace

void sigmoid_gate_forward(int64_t rows, int64_t n, float scale, ConstView x, View y, int threads) {
  const auto& kernels = simd::kernels().layers;
  for_row_blocks(rows, n, threads, [&](int64_t begin, int64_t end) {
    kernels.sigmoid(end - begin, n, scale, x.from(begin), y.from(begin));
  });
}

void sigmoid_gate_backward(int64_t rows, int64_t n, float scale, ConstView y, ConstView dy, View dx, int threads) {
  const auto& kernels = simd::kernels().layers;
  for_row_blocks(rows, n, threads, [&](int64_t begin, int64_t end) {
    kernels.sigmoid_grad(end - begin, n, scale, y.from(begin), dy.from(begin), dx.from(begin));
  });
}

void silu_forward(int64_t rows, int64_t n, ConstView x, View y, int threads) {
  const auto& kernels = simd::kernels().layers;
  for_row_blocks(rows, n, threads,
                 [&](int64_t begin, int64_t end) { kernels.silu(end - begin, n, x.from(begin), y.from(begin)); });
}

void silu_backward(int64_t rows, int64_t n, ConstView x, ConstView dy, View dx, int threads) {
  const auto& kernels = simd::kernels().layers;
  for_row_blocks(rows, n, threads, [&](int64_t begin, int64_t end) {
    kernels.silu_grad(end - begin, n, x.from(begin), dy.from(begin), dx.from(begin));
  });
}

void decay_gate_forward(const DecayGate& gate, int64_t rows, ConstView x, View g, int threads) {
  const auto& kernels = simd::kernels().layers;
  const float* rates = rates_of(gate, layer_scratch());
  for_row_blocks(rows, gate.n, threads, [&](int64_t begin, int64_t end) {
    kernels.decay(end - begin, gate.n, rates, gate.dt_bias, x.from(begin), g.from(begin));
  });
}

void decay_gate_backward(const DecayGate& gate, int64_t rows, ConstView x, ConstView dg, View dx, float* dA_log,
                         float* ddt_bias, int threads) {
  const auto& kernels = simd::kernels().layers;
  Arena& scratch = layer_scratch();
  const float* rates = rates_of(gate, scratch);
  const RowSums blocks(scratch, rows, gate.n, 2 * gate.n);
  blocks.for_blocks(threads, [&](int64_t begin, int64_t end, float* sums) {
    kernels.decay_grad(end - begin, gate.n, rates, gate.dt_bias, x.from(begin), dg.from(begin), dx.from(begin), sums,
                       sums + gate.n);
  });
  const float* total = blocks.total(threads);
  const int64_t per_head = gate.n / gate.heads;
  for (int64_t j = 0; j < gate.n; ++j) {
    if (dA_log) dA_log[j / per_head] += total[j];  // dg/dA_log = g
    if (ddt_bias) ddt_bias[j] += total[gate.n + j];
  }
}

}  // namespace deltanet::nn
