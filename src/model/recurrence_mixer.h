#pragma once

#include "base/arena.h"
#include "deltanet/recurrence.h"
#include "model/gradients.h"
#include "model/layout.h"
#include "model/pass.h"
#include "model/state.h"
#include "model/weights.h"
#include "nn/gated_norm.h"
#include "nn/short_conv.h"

// The mixer of a linear-attention layer, for T tokens x [T,D]:
//
//   p = x W^T                      all projections at once; the low-rank ones have a second product
//   q,k,v = silu(conv(p))          causal, depthwise
//   gates of the recurrence from p: beta = sigmoid, g = -exp(A_log) softplus(p + dt_bias)
//   o = recurrence(q, k, v, gates)
//   y = rms(o) per head, times the output gate
//
// The product with o_proj belongs to the layer (layer.h).

namespace deltanet {

// Values that the forward pass leaves for the backward pass, and, in a second set, their gradients.
struct RecurrenceActivations {
  float* proj = nullptr;        // [T, in.out], rows nn::wide_ld(in.out) apart
  float* qkv = nullptr;         // [T, 2HK+UV]
  float* decay_in = nullptr;    // [T, UK]: low-rank decay before its gate
  float* gate_in = nullptr;     // [T, UV]: low-rank output gate before its sigmoid
  float* eta_in = nullptr;      // [T, HK]
  float* g = nullptr;           // [T, U] or [T, UK]; constant decay: [U]
  float* beta = nullptr;        // [T, U], or [T, H] where it is repeated
  float* beta_erase = nullptr;  // [T, U]
  float* g_atk = nullptr;       // [T, H]
  float* beta_atk = nullptr;    // [T, H]
  float* erase = nullptr;       // [T, HK], rows of each head normalized
  float* erase_rstd = nullptr;  // [T, H]
  float* eta = nullptr;         // [T, HK]
  float* low_rank = nullptr;    // [T, HK]: eta * erase or eta * k, the factor that the tying asks for, or a free key
  float* repeated = nullptr;    // [T, 2UK+U]: q, k, beta for each value head (PKDA with grouped heads)
  float* ridge = nullptr;       // [H, K] or [H]
  float* writes = nullptr;      // [T, UV]: what the recurrence has written, for its gradient; training alone
  float* o = nullptr;           // [T, UV]
  float* o_rstd = nullptr;      // [T, U]
  // Gradients of parameters, which the recurrence overwrites and which are then added to the others.
  float* log_atk_scale = nullptr;  // [H]
  float* d = nullptr;              // [H]
};

class RecurrenceMixer {
 public:
  RecurrenceMixer(const Config& config, const RecurrenceLayout& layout);

  // Takes the buffers for passes of up to that many tokens.
  RecurrenceActivations plan(Arena& arena, int64_t tokens, Holds holds) const;

  // y [T, UV]. `state` may be null: sequences start empty and their end is forgotten.
  void forward(const Pass& pass, const Weights& weights, const nn::Factor& x, const RecurrenceActivations& a,
               LayerState* state, bool fresh_state, const nn::Factor& y) const;
  // y again, from what forward left.
  void output(const Pass& pass, const Weights& weights, const RecurrenceActivations& a, const nn::Factor& y) const;
  // From dy [T, UV]: the gradients of all parameters but o_proj, and dx [T,D]. `a` must be as forward left it, without
  // a state; x as it was given.
  void backward(const Pass& pass, const Weights& weights, const nn::Factor& x, const RecurrenceActivations& a,
                nn::ConstView dy, const RecurrenceActivations& d, const Gradients& to, nn::View dx) const;

 private:
  template <class Float>
  InputsOf<BasicTensor<Float>> bind(const RecurrenceActivations& a, int64_t tokens, Float* log_atk_scale,
                                    Float* d) const;
  Options options(const Pass& pass, const RecurrenceActivations& a) const;
  void bind_state(LayerState& state, int64_t N, bool fresh, Inputs& in, Outputs& out) const;
  nn::ShortConv convolution(const Weights& weights) const;
  nn::GatedNorm output_norm(const Weights& weights) const;
  nn::GatedNorm erase_norm() const;
  nn::View gate_of(const RecurrenceActivations& a) const;
  nn::View erase_source(const RecurrenceActivations& a) const;
  float eta_scale() const;
  void gates(const Pass& pass, const Weights& weights, const RecurrenceActivations& a) const;
  void gates_backward(const Pass& pass, const Weights& weights, const RecurrenceActivations& a,
                      const RecurrenceActivations& d, const Gradients& to) const;
  void repeat_heads(const Pass& pass, const RecurrenceActivations& a) const;
  void repeat_heads_backward(const Pass& pass, const RecurrenceActivations& d) const;
  void low_rank_factor(const Pass& pass, const RecurrenceActivations& a) const;
  void low_rank_factor_backward(const Pass& pass, const RecurrenceActivations& a, const RecurrenceActivations& d) const;

  const Config& config_;
  const RecurrenceLayout& layout_;
  int64_t H_, U_, K_, V_, channels_;
  bool repeats_;                   // q, k and beta are repeated for each value head
  std::vector<float> unit_scale_;  // [K], makes an RMS norm an L2 norm
  std::vector<float> unit_taps_;  // [2HK+UV], a convolution of width 1 that only applies SiLU; empty where there is one
};

}  // namespace deltanet
