#pragma once

#include <cstdint>

// The kernels of the layers around the recurrence. Unlike the matrices of kernels.h, activations are slices of wider
// matrices: rows of any length n, at any address, with a distance ld between them. Kernels read and write exactly the n
// floats of a row; full vectors are fastest, so n is best a multiple of 16.
//
// A result may be the same matrix as an input where the comment says so; otherwise they do not overlap.

namespace deltanet::simd {

// A matrix whose row r starts at data + r * ld. Without data it is absent.
struct ConstView {
  const float* data = nullptr;
  int64_t ld = 0;

  const float* row(int64_t r) const { return data + r * ld; }
  ConstView from(int64_t r) const { return {row(r), ld}; }
};

struct View {
  float* data = nullptr;
  int64_t ld = 0;

  float* row(int64_t r) const { return data + r * ld; }
  View from(int64_t r) const { return {row(r), ld}; }
  operator ConstView() const { return {data, ld}; }
};

enum class GateActivation { kNone, kSigmoid, kSilu };  // kNone: there is no gate

// y = o rstd w act(gate) for every head, rstd = 1/sqrt(mean(o*o) + eps)
struct GatedNorm {
  int64_t rows, heads, n;  // n values per head; the heads of a row are neighbors
  GateActivation activation;
  ConstView o;     // [rows, heads*n]
  ConstView gate;  // [rows, heads*n]
  const float* w;  // [n] or null
};

struct GatedNormGrad {
  GatedNorm forward;
  const float* rstd;  // [rows*heads]
  ConstView dy;
  View d_o;    // set; may be dy
  View dgate;  // set; may be gate
  float* dw;   // [n], added to; or null
};

inline constexpr int64_t kConvMaxWidth = 8;
inline constexpr int64_t kConvTokens = 4;  // of one group
inline constexpr int64_t kConvRows = kConvMaxWidth - 1 + kConvTokens;

// A causal depthwise convolution for a group of up to kConvTokens consecutive tokens:
//   pre_t = bias + sum_j w_j * x_{t+j} (j < width),   y = silu(pre) or pre
// Rows are given one by one, since those before the start of a sequence lie elsewhere.
struct ConvGroup {
  int64_t tokens, channels, width;
  const float* weight;          // [channels][width]
  bool reversed = false;        // use w_{width-1-j} for w_j
  const float* bias = nullptr;  // [channels] or null
  bool silu = false;
  const float* x[kConvRows] = {};     // [tokens + width - 1] rows, oldest first; null: a row of zeros
  float* y[kConvTokens] = {};         // [tokens] rows
  const float* dy[kConvTokens] = {};  // conv_grad only
  int64_t x_ahead = 0, dy_ahead = 0;  // floats to the rows of the next group, to ask for them early; 0: not to
  float* dweight = nullptr;           // conv_grad only: [width][channels], row distance ld_dweight, added to; or null
  int64_t ld_dweight = 0;
  float* dbias = nullptr;  // conv_grad only: [channels], added to; or null
};

struct LayerKernels {
  // y = x rstd w, rstd = 1/sqrt(mean(x*x) + eps); w and rstd may be null; y may be x.
  void (*rms_norm)(int64_t rows, int64_t n, float eps, ConstView x, const float* w, View y, float* rstd);
  // The same for total = h + r, which may be h.
  void (*add_rms_norm)(int64_t rows, int64_t n, float eps, ConstView h, ConstView r, const float* w, View total, View y,
                       float* rstd);
  void (*rms_norm_apply)(int64_t rows, int64_t n, ConstView x, const float* rstd, const float* w, View y);
  // Adds to dx, and to dw [n] if neither w nor dw is null.
  void (*rms_norm_grad)(int64_t rows, int64_t n, ConstView x, const float* rstd, const float* w, ConstView dy, View dx,
                        float* dw);
  void (*gated_norm)(const GatedNorm&, float eps, View y, float* rstd);
  void (*gated_norm_grad)(const GatedNormGrad&);

  void (*conv)(const ConvGroup&);
  void (*conv_grad)(const ConvGroup&);  // y = gradient of pre

  // y = scale / (1 + exp(-x)); dx = dy y (1 - y/scale). y may be x, dx may be dy.
  void (*sigmoid)(int64_t rows, int64_t n, float scale, ConstView x, View y);
  void (*sigmoid_grad)(int64_t rows, int64_t n, float scale, ConstView y, ConstView dy, View dx);
  void (*silu)(int64_t rows, int64_t n, ConstView x, View y);
  void (*silu_grad)(int64_t rows, int64_t n, ConstView x, ConstView dy, View dx);
  // y = silu(gate) up. In the gradient y is set too, unless absent; dgate may be gate and dup may be up.
  void (*swiglu)(int64_t rows, int64_t n, ConstView gate, ConstView up, View y);
  void (*swiglu_grad)(int64_t rows, int64_t n, ConstView gate, ConstView up, ConstView dy, View dgate, View dup,
                      View y);
  // g = -rate softplus(x + bias), rate and bias [n], bias may be null; g may be x.
  void (*decay)(int64_t rows, int64_t n, const float* rate, const float* bias, ConstView x, View g);
  // dx is set and may be dg; the column sums of dg g and of dx are added to dlog_rate and dbias, [n] each.
  void (*decay_grad)(int64_t rows, int64_t n, const float* rate, const float* bias, ConstView x, ConstView dg, View dx,
                     float* dlog_rate, float* dbias);

  float (*max)(int64_t n, const float* x);  // -inf for n = 0
  // sum exp(x - shift), shift >= max x; the terms are kept in y unless it is null; y may be x.
  double (*exp_sum)(int64_t n, float shift, const float* x, float* y);
  void (*scale)(int64_t n, float factor, float* x);  // x = factor x
};

}  // namespace deltanet::simd
