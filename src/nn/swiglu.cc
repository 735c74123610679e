#include "nn/swiglu.h"

#include "simd/kernels.h"

namespace deltanet::nn {

void swiglu_forward(int64_t rows, int64_t n, ConstRows gate, ConstRows up, Rows y, int threads) {
  const auto& kernels = simd::kernels().layers;
  for_row_blocks(rows, n, threads, [&](int64_t begin, int64_t end) {
    kernels.swiglu(end - begin, n, gate.from(begin), up.from(begin), y.from(begin));
  });
}

void swiglu_backward(int64_t rows, int64_t n, ConstRows gate, ConstRows up, ConstRows dy, Rows dgate, Rows dup, Rows y,
                     int threads) {
  const auto& kernels = simd::kernels().layers;
  for_row_blocks(rows, n, threads, [&](int64_t begin, int64_t end) {
    kernels.swiglu_grad(end - begin, n, gate.from(begin), up.from(begin), dy.from(begin), dgate.from(begin),
                        dup.from(begin), y.data ? y.from(begin) : y);
  });
}

}  // namespace deltanet::nn
