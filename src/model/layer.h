#pragma once

#include <memory>
#include <optional>

#include "base/arena.h"
#include "model/attention_mixer.h"
#include "model/recurrence_mixer.h"

// One layer of the stack, h [T,D]:
//   h <- h + mixer(rms(h)) W_o^T,   h <- h + swiglu(rms(h) W_gu^T) W_d^T

namespace deltanet {

// What a layer leaves for its backward pass; a second set holds the gradients. Rows [n] of the float32 matrices here
// and below are nn::wide_ld(n) floats apart.
struct LayerActivations {
  float* h = nullptr;          // [T,D]: input
  float* h_mid = nullptr;      // [T,D]: between mixer and MLP
  float* attn_rstd = nullptr;  // [T]
  float* mlp_rstd = nullptr;   // [T]
  RecurrenceActivations recurrence;
  AttentionActivations attention;
  float* gate_up = nullptr;  // [T,2F]
};

// Memory that all layers share. The layers keep what a product takes in the product's type there (nn/factor.h).
struct LayerScratch {
  float* x = nullptr;        // [T,D]: normalized input of a product
  float* y = nullptr;        // [T, width of the mixer's output]
  float* product = nullptr;  // [T,F]: what the MLP projects down
};

class Layer {
 public:
  Layer(const Config& config, const LayerLayout& layout, std::shared_ptr<nn::Rope> rope);

  int64_t mixer_width() const { return mixer_width_; }

  // Buffers of the mixer and the MLP; h and h_mid are the caller's.
  void plan(Arena& arena, int64_t tokens, Holds holds, LayerActivations& a) const;

  // `pending` [T,D] is what the layer before has yet to add to its h_mid (`before`): the sum becomes a.h. Null: a.h
  // holds the input. On return `pending_out` holds what this layer has yet to add to a.h_mid.
  void forward(const Pass& pass, const Weights& weights, const float* before, const float* pending,
               const LayerActivations& a, const LayerScratch& scratch, LayerState* state, bool fresh_state,
               float* pending_out) const;

  // dh [T,D]: gradient of the layer's output on entry, of its input on return.
  void backward(const Pass& pass, const Weights& weights, const LayerActivations& a, const LayerActivations& d,
                const LayerScratch& scratch, const LayerScratch& dscratch, const Gradients& to, float* dh) const;

 private:
  const MatrixAt& mixer_in() const { return attention_ ? layout_.attention.in : layout_.recurrence.in; }
  const MatrixAt& mixer_out() const { return attention_ ? layout_.attention.out : layout_.recurrence.out; }
  void mlp_backward(const Pass& pass, const Weights& weights, const LayerActivations& a, const LayerActivations& d,
                    const LayerScratch& scratch, const LayerScratch& dscratch, const Gradients& to, float* dh) const;
  void mixer_backward(const Pass& pass, const Weights& weights, const LayerActivations& a, const LayerActivations& d,
                      const LayerScratch& scratch, const LayerScratch& dscratch, const Gradients& to, float* dh) const;

  const Config& config_;
  const LayerLayout& layout_;
  std::optional<RecurrenceMixer> recurrence_;
  std::optional<AttentionMixer> attention_;
  int64_t mixer_width_ = 0;
};

}  // namespace deltanet
