#pragma once

#include <memory>

#include "base/arena.h"
#include "model/gradients.h"
#include "model/layout.h"
#include "model/pass.h"
#include "model/state.h"
#include "model/weights.h"
#include "nn/attention/attention.h"
#include "nn/attention/rope.h"
#include "nn/gated_norm.h"

// Causal softmax attention as a mixer, x [T,D]: q, k, v = x W^T + bias, optionally an RMS norm of each head of q and k,
// RoPE, attention. The product with o_proj belongs to the layer (layer.h).

namespace deltanet {

struct AttentionActivations {
  float* proj = nullptr;     // [T, in.out]: q, k, v before the norm and RoPE; rows nn::wide_ld(in.out) apart
  float* rotated = nullptr;  // [T, q+k]: q, k after both
  float* rstd = nullptr;     // [T, heads + kv_heads] of the norms
  float* o = nullptr;        // [T, heads*head_dim]
  float* lse = nullptr;      // [T, heads]
};

class AttentionMixer {
 public:
  // Layers of the same head size and theta share a table of angles.
  AttentionMixer(const Config& config, const AttentionConfig& attention, const AttentionLayout& layout,
                 std::shared_ptr<nn::Rope> rope);

  AttentionActivations plan(Arena& arena, int64_t tokens) const;

  // y [T, heads*head_dim]. `state` may be null.
  void forward(const Pass& pass, const Weights& weights, const nn::Factor& x, const AttentionActivations& a,
               LayerState* state, const nn::Factor& y) const;
  void output(const Pass& pass, const AttentionActivations& a, const nn::Factor& y) const;
  void backward(const Pass& pass, const Weights& weights, const nn::Factor& x, const AttentionActivations& a,
                nn::ConstView dy, const AttentionActivations& d, const Gradients& to, nn::View dx) const;

 private:
  nn::GatedNorm norm_of(const Weights& weights, int64_t heads, int64_t weight) const;
  nn::Attention arguments(const Pass& pass, const AttentionActivations& a) const;

  const Config& config_;
  const AttentionConfig& attention_;
  const AttentionLayout& layout_;
  std::shared_ptr<nn::Rope> rope_;
};

}  // namespace deltanet
