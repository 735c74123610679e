// Elementwise layers with an exponential: sigmoid, SiLU, SwiGLU, the decay gate, and the pieces of a softmax.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/layers_gates.cc"
#include "hwy/foreach_target.h"

#include <algorithm>
#include <limits>

#include "hwy/highway.h"
#include "simd/layers-inl.h"
#include "simd/modules.h"

HWY_BEFORE_NAMESPACE();
namespace deltanet::simd {
namespace HWY_NAMESPACE {
namespace {

void sigmoid(int64_t rows, int64_t n, float scale, ConstView x, View y) {
  const Vec factor = hn::Set(D(), scale);
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x.row(r);
    float* out = y.row(r);
    for_lanes(n, [&](int64_t i, auto lanes)
                     DELTANET_BODY { lanes.store(hn::Mul(factor, sigmoid_of(lanes.load(in + i)).value), out + i); });
  }
}

void sigmoid_grad(int64_t rows, int64_t n, float scale, ConstView y, ConstView dy, View dx) {
  const D d;
  const Vec one = hn::Set(d, 1.0f), inverse_scale = hn::Set(d, 1.0f / scale);
  for (int64_t r = 0; r < rows; ++r) {
    const float *y_row = y.row(r), *dy_row = dy.row(r);
    float* dx_row = dx.row(r);
    for_lanes(n, [&](int64_t i, auto lanes) DELTANET_BODY {
      const Vec v = lanes.load(y_row + i);
      const Vec slope = hn::Mul(v, hn::NegMulAdd(v, inverse_scale, one));
      lanes.store(hn::Mul(lanes.load(dy_row + i), slope), dx_row + i);
    });
  }
}

void silu(int64_t rows, int64_t n, ConstView x, View y) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x.row(r);
    float* out = y.row(r);
    for_lanes(n, [&](int64_t i, auto lanes) DELTANET_BODY { lanes.store(silu_of(lanes.load(in + i)), out + i); });
  }
}

void silu_grad(int64_t rows, int64_t n, ConstView x, ConstView dy, View dx) {
  for (int64_t r = 0; r < rows; ++r) {
    const float *x_row = x.row(r), *dy_row = dy.row(r);
    float* dx_row = dx.row(r);
    for_lanes(n, [&](int64_t i, auto lanes) DELTANET_BODY {
      const Vec v = lanes.load(x_row + i);
      lanes.store(hn::Mul(lanes.load(dy_row + i), silu_slope(v, sigmoid_of(v))), dx_row + i);
    });
  }
}

void swiglu(int64_t rows, int64_t n, ConstView gate, ConstView up, View y) {
  for (int64_t r = 0; r < rows; ++r) {
    const float *gate_row = gate.row(r), *up_row = up.row(r);
    float* out = y.row(r);
    for_lanes(n, [&](int64_t i, auto lanes) DELTANET_BODY {
      ask_for(gate_row + i, gate.ld);
      ask_for(up_row + i, up.ld);
      lanes.store(hn::Mul(silu_of(lanes.load(gate_row + i)), lanes.load(up_row + i)), out + i);
    });
  }
}

void swiglu_grad(int64_t rows, int64_t n, ConstView gate, ConstView up, ConstView dy, View dgate, View dup, View y) {
  for (int64_t r = 0; r < rows; ++r) {
    const float *gate_row = gate.row(r), *up_row = up.row(r), *dy_row = dy.row(r);
    float *dgate_row = dgate.row(r), *dup_row = dup.row(r), *y_row = y.data ? y.row(r) : nullptr;
    for_lanes(n, [&](int64_t i, auto lanes) DELTANET_BODY {
      const Vec g = lanes.load(gate_row + i), u = lanes.load(up_row + i), grad = lanes.load(dy_row + i);
      ask_for(gate_row + i, gate.ld);
      ask_for(up_row + i, up.ld);
      ask_for(dy_row + i, dy.ld);
      const Sigmoid s = sigmoid_of(g);
      const Vec activated = hn::Mul(g, s.value);
      lanes.store(hn::Mul(hn::Mul(grad, u), silu_slope(g, s)), dgate_row + i);
      lanes.store(hn::Mul(grad, activated), dup_row + i);
      if (y_row) lanes.store(hn::Mul(activated, u), y_row + i);
    });
  }
}

void decay(int64_t rows, int64_t n, const float* rate, const float* bias, ConstView x, View g) {
  const Vec zero = hn::Zero(D());
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x.row(r);
    float* out = g.row(r);
    for_lanes(n, [&](int64_t i, auto lanes) DELTANET_BODY {
      const Vec z = hn::Add(lanes.load(in + i), bias ? lanes.load(bias + i) : zero);
      lanes.store(hn::Neg(hn::Mul(lanes.load(rate + i), softplus_of(z))), out + i);
    });
  }
}

void decay_grad(int64_t rows, int64_t n, const float* rate, const float* bias, ConstView x, ConstView dg, View dx,
                float* dlog_rate, float* dbias) {
  const Vec zero = hn::Zero(D());
  for (int64_t r = 0; r < rows; ++r) {
    const float *x_row = x.row(r), *dg_row = dg.row(r);
    float* dx_row = dx.row(r);
    for_lanes(n, [&](int64_t i, auto lanes) DELTANET_BODY {
      const Vec z = hn::Add(lanes.load(x_row + i), bias ? lanes.load(bias + i) : zero);
      const Vec scaled = hn::Neg(hn::Mul(lanes.load(rate + i), lanes.load(dg_row + i)));
      const Vec dz = hn::Mul(scaled, sigmoid_of(z).value);
      lanes.store(dz, dx_row + i);
      lanes.store(hn::MulAdd(scaled, softplus_of(z), lanes.load(dlog_rate + i)), dlog_rate + i);
      lanes.store(hn::Add(dz, lanes.load(dbias + i)), dbias + i);
    });
  }
}

float max(int64_t n, const float* x) {
  const D d;
  const Vec lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  const Vec largest = fold_lanes(
      n, lowest,
      [&](int64_t i, auto lanes, Vec acc)
          DELTANET_BODY { return hn::Max(acc, lanes.select(lanes.load(x + i), lowest)); },
      [](Vec a, Vec b) DELTANET_BODY { return hn::Max(a, b); });
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

double exp_sum(int64_t n, float shift, const float* x, float* y) {
  // A vocabulary is long: float sums of short pieces, added up in double.
  constexpr int64_t kPiece = 2048;
  const Vec offset = hn::Set(D(), shift), zero = hn::Zero(D());
  double total = 0.0;
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const float* in = x + begin;
    float* out = y ? y + begin : nullptr;
    total +=
        static_cast<double>(sum_lanes(std::min(kPiece, n - begin), [&](int64_t i, auto lanes, Vec acc) DELTANET_BODY {
          const Vec e = exp_negative(hn::Sub(lanes.load(in + i), offset));
          if (out) lanes.store(e, out + i);
          return hn::Add(acc, lanes.select(e, zero));
        }));
  }
  return total;
}

void scale(int64_t n, float factor, float* x) {
  const Vec f = hn::Set(D(), factor);
  for_lanes(n, [&](int64_t i, auto lanes) DELTANET_BODY { lanes.store(hn::Mul(f, lanes.load(x + i)), x + i); });
}

}  // namespace

void fill_layers_gates(Kernels& table) {
  table.layers.sigmoid = sigmoid;
  table.layers.sigmoid_grad = sigmoid_grad;
  table.layers.silu = silu;
  table.layers.silu_grad = silu_grad;
  table.layers.swiglu = swiglu;
  table.layers.swiglu_grad = swiglu_grad;
  table.layers.decay = decay;
  table.layers.decay_grad = decay_grad;
  table.layers.max = max;
  table.layers.exp_sum = exp_sum;
  table.layers.scale = scale;
}

}  // namespace HWY_NAMESPACE
}  // namespace deltanet::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltanet::simd {
HWY_EXPORT(fill_layers_gates);
void add_layers_gates(Kernels& table) { HWY_DYNAMIC_DISPATCH(fill_layers_gates)(table); }
}  // namespace deltanet::simd
#endif
