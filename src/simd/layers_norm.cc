// RMS norms: over rows, with a residual, and over heads with a gate.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/layers_norm.cc"
#include "hwy/foreach_target.h"

#include <cmath>
#include <limits>

#include "hwy/highway.h"
#include "simd/layers-inl.h"
#include "simd/modules.h"

HWY_BEFORE_NAMESPACE();
namespace deltanet::simd {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE float inverse_rms(float sum_of_squares, int64_t n, float eps) {
  // Squares overflow before a row does; divided by infinity it would be a healthy zero.
  if (!(sum_of_squares <= std::numeric_limits<float>::max())) return std::numeric_limits<float>::quiet_NaN();
  return 1.0f / std::sqrt(sum_of_squares / static_cast<float>(n) + eps);
}

HWY_INLINE float sum_of_squares(int64_t n, const float* x) {
  return sum_lanes(n, [&](int64_t i, auto lanes, Vec acc) DELTANET_BODY {
    const Vec v = lanes.load(x + i);
    return hn::MulAdd(v, v, acc);
  });
}

// y = factor x w
HWY_INLINE void scale_row(int64_t n, float factor, const float* x, const float* w, float* y) {
  const Vec rstd = hn::Set(D(), factor);
  if (w) {
    for_lanes(n, [&](int64_t i, auto lanes) DELTANET_BODY {
      lanes.store(hn::Mul(hn::Mul(lanes.load(x + i), rstd), lanes.load(w + i)), y + i);
    });
  } else {
    for_lanes(n, [&](int64_t i, auto lanes) DELTANET_BODY { lanes.store(hn::Mul(lanes.load(x + i), rstd), y + i); });
  }
}

void rms_norm(int64_t rows, int64_t n, float eps, ConstView x, const float* w, View y, float* rstd) {
  for (int64_t r = 0; r < rows; ++r) {
    const float inverse = inverse_rms(sum_of_squares(n, x.row(r)), n, eps);
    if (rstd) rstd[r] = inverse;
    scale_row(n, inverse, x.row(r), w, y.row(r));
  }
}

void add_rms_norm(int64_t rows, int64_t n, float eps, ConstView h, ConstView r, const float* w, View total, View y,
                  float* rstd) {
  for (int64_t row = 0; row < rows; ++row) {
    float* sum = total.row(row);
    const float *before = h.row(row), *residual = r.row(row);
    const float squares = sum_lanes(n, [&](int64_t i, auto lanes, Vec acc) DELTANET_BODY {
      const Vec v = hn::Add(lanes.load(before + i), lanes.load(residual + i));
      lanes.store(v, sum + i);
      return hn::MulAdd(v, v, acc);
    });
    const float inverse = inverse_rms(squares, n, eps);
    if (rstd) rstd[row] = inverse;
    scale_row(n, inverse, sum, w, y.row(row));
  }
}

void rms_norm_apply(int64_t rows, int64_t n, ConstView x, const float* rstd, const float* w, View y) {
  for (int64_t r = 0; r < rows; ++r) scale_row(n, rstd[r], x.row(r), w, y.row(r));
}

// With u = dy w: dx = rstd u - x rstd^3 mean(u x), dw = dy x rstd.
template <bool kWeight, bool kWeightGrad>
void rms_norm_grad_of(int64_t rows, int64_t n, ConstView x, const float* rstd, const float* w, ConstView dy, View dx,
                      float* dw) {
  const D d;
  for (int64_t r = 0; r < rows; ++r) {
    const float *x_row = x.row(r), *dy_row = dy.row(r);
    float* dx_row = dx.row(r);
    const float along = sum_lanes(n, [&](int64_t i, auto lanes, Vec acc) DELTANET_BODY {
      Vec u = lanes.load(dy_row + i);
      if constexpr (kWeight) u = hn::Mul(u, lanes.load(w + i));
      return hn::MulAdd(u, lanes.load(x_row + i), acc);
    });
    const Vec inverse = hn::Set(d, rstd[r]);
    const Vec back = hn::Set(d, rstd[r] * rstd[r] * rstd[r] * along / static_cast<float>(n));
    for_lanes(n, [&](int64_t i, auto lanes) DELTANET_BODY {
      const Vec at = lanes.load(x_row + i);
      const Vec scaled = hn::Mul(lanes.load(dy_row + i), inverse);
      Vec u = scaled;
      if constexpr (kWeight) u = hn::Mul(u, lanes.load(w + i));
      lanes.store(hn::NegMulAdd(at, back, hn::Add(lanes.load(dx_row + i), u)), dx_row + i);
      if constexpr (kWeightGrad) lanes.store(hn::MulAdd(scaled, at, lanes.load(dw + i)), dw + i);
    });
  }
}

void rms_norm_grad(int64_t rows, int64_t n, ConstView x, const float* rstd, const float* w, ConstView dy, View dx,
                   float* dw) {
  if (w && dw) return rms_norm_grad_of<true, true>(rows, n, x, rstd, w, dy, dx, dw);
  if (w) return rms_norm_grad_of<true, false>(rows, n, x, rstd, w, dy, dx, dw);
  return rms_norm_grad_of<false, false>(rows, n, x, rstd, w, dy, dx, dw);
}

template <GateActivation kActivation>
HWY_INLINE Vec activate(Vec gate) {
  return kActivation == GateActivation::kSigmoid ? sigmoid_of(gate).value : silu_of(gate);
}

template <GateActivation kActivation>
void gated_norm_of(const GatedNorm& p, float eps, View y, float* rstd) {
  const Vec one = hn::Set(D(), 1.0f);
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t head = 0; head < p.heads; ++head) {
      const float* o = p.o.row(r) + head * p.n;
      const float* gate = p.gate.data ? p.gate.row(r) + head * p.n : nullptr;
      float* out = y.row(r) + head * p.n;
      const float* w = p.w;
      const float inverse = inverse_rms(sum_of_squares(p.n, o), p.n, eps);
      if (rstd) rstd[r * p.heads + head] = inverse;
      const Vec factor = hn::Set(D(), inverse);
      for_lanes(p.n, [&](int64_t i, auto lanes) DELTANET_BODY {
        Vec v = hn::Mul(hn::Mul(lanes.load(o + i), factor), w ? lanes.load(w + i) : one);
        if constexpr (kActivation != GateActivation::kNone) v = hn::Mul(v, activate<kActivation>(lanes.load(gate + i)));
        lanes.store(v, out + i);
      });
    }
  }
}

// With z = o rstd, a = act(gate) and u = dy w a: do = rstd (u - z mean(u z)), dgate = dy w z act'(gate), dw = dy z a.
template <GateActivation kActivation>
void gated_norm_grad_of(const GatedNormGrad& p) {
  const D d;
  const GatedNorm& f = p.forward;
  const float* w = f.w;
  float* dw = p.dw;
  const Vec one = hn::Set(d, 1.0f);
  for (int64_t r = 0; r < f.rows; ++r) {
    for (int64_t head = 0; head < f.heads; ++head) {
      const int64_t column = head * f.n;
      const float *o = f.o.row(r) + column, *dy = p.dy.row(r) + column;
      float* d_o = p.d_o.row(r) + column;
      const float rstd = p.rstd[r * f.heads + head];
      const Vec inverse = hn::Set(d, rstd);
      // u waits in do until its mean is known.
      const float along = sum_lanes(f.n, [&](int64_t i, auto lanes, Vec acc) DELTANET_BODY {
        const Vec z = hn::Mul(lanes.load(o + i), inverse);
        Vec u = lanes.load(dy + i);
        const Vec weight = w ? lanes.load(w + i) : one;
        if constexpr (kActivation != GateActivation::kNone) {
          const Vec g = lanes.load(f.gate.row(r) + column + i);
          const Sigmoid s = sigmoid_of(g);
          Vec a, slope;
          if constexpr (kActivation == GateActivation::kSilu) {
            a = hn::Mul(g, s.value);
            slope = silu_slope(g, s);
          } else {
            a = s.value;
            slope = hn::Mul(s.value, s.complement);
          }
          lanes.store(hn::Mul(hn::Mul(u, weight), hn::Mul(z, slope)), p.dgate.row(r) + column + i);
          u = hn::Mul(u, a);
        }
        if (dw) lanes.store(hn::MulAdd(u, z, lanes.load(dw + i)), dw + i);
        u = hn::Mul(u, weight);
        lanes.store(u, d_o + i);
        return hn::MulAdd(u, z, acc);
      });
      const Vec back = hn::Set(d, rstd * along / static_cast<float>(f.n));
      for_lanes(f.n, [&](int64_t i, auto lanes) DELTANET_BODY {
        const Vec across = hn::NegMulAdd(lanes.load(o + i), back, lanes.load(d_o + i));
        lanes.store(hn::Mul(inverse, across), d_o + i);
      });
    }
  }
}

void gated_norm(const GatedNorm& p, float eps, View y, float* rstd) {
  switch (p.activation) {
    case GateActivation::kNone:
      return gated_norm_of<GateActivation::kNone>(p, eps, y, rstd);
    case GateActivation::kSigmoid:
      return gated_norm_of<GateActivation::kSigmoid>(p, eps, y, rstd);
    case GateActivation::kSilu:
      return gated_norm_of<GateActivation::kSilu>(p, eps, y, rstd);
  }
}

void gated_norm_grad(const GatedNormGrad& p) {
  switch (p.forward.activation) {
    case GateActivation::kNone:
      return gated_norm_grad_of<GateActivation::kNone>(p);
    case GateActivation::kSigmoid:
      return gated_norm_grad_of<GateActivation::kSigmoid>(p);
    case GateActivation::kSilu:
      return gated_norm_grad_of<GateActivation::kSilu>(p);
  }
}

}  // namespace

void fill_layers_norm(Kernels& table) {
  table.layers.rms_norm = rms_norm;
  table.layers.add_rms_norm = add_rms_norm;
  table.layers.rms_norm_apply = rms_norm_apply;
  table.layers.rms_norm_grad = rms_norm_grad;
  table.layers.gated_norm = gated_norm;
  table.layers.gated_norm_grad = gated_norm_grad;
}

}  // namespace HWY_NAMESPACE
}  // namespace deltanet::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltanet::simd {
HWY_EXPORT(fill_layers_norm);
void add_layers_norm(Kernels& table) { HWY_DYNAMIC_DISPATCH(fill_layers_norm)(table); }
}  // namespace deltanet::simd
#endif
