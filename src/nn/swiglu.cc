#include "nn/swiglu.h"

#include "simd/kernels.h"

namespace deltanet::nn {

void swiglu_forward(int64_t rows, int64_t n, ConstView gate, ConstView up, const Factor& y, int threads) {
  const auto& kernels = simd::kernels().layers;
  for_factor_blocks(rows, n, threads, y, [&](int64_t begin, int64_t end, View out) {
    kernels.swiglu(end - begin, n, gate.from(begin), up.from(begin), out);
  });
}

void swiglu_backward(int64_t rows, int64_t n, ConstView gate, ConstView up, ConstView dy, const Factor& dgate,
                     const Factor& dup, const Factor& y, int threads) {
  const auto& kernels = simd::kernels().layers;
  for_row_blocks(rows, n, threads, [&](int64_t begin, int64_t end) {
    const int64_t step = std::min(rows_before_rounding(dgate, end - begin, n), rows_before_rounding(y, end - begin, n));
    for (int64_t row = begin; row < end; row += step) {
      const int64_t count = std::min(step, end - row);
      const FactorRows to_gate(dgate.from(row), count, n, 0), to_up(dup.from(row), count, n, 1);
      const FactorRows to_y(y.from(row), count, n, 2);
      kernels.swiglu_grad(count, n, gate.from(row), up.from(row), dy.from(row), to_gate.rows(), to_up.rows(),
                          to_y.rows());
      for (const FactorRows* written : {&to_gate, &to_up, &to_y}) written->finish();
    }
  });
}

}  // namespace deltanet::nn
