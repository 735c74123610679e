#include "model/layer.h"

#include <utility>

#include "nn/linear.h"
#include "nn/rms_norm.h"
#include "nn/swiglu.h"

namespace deltanet {
namespace {

// What the product with `matrix` takes, in this memory.
nn::Factor input_of(const MatrixAt& matrix, const Weights& w, int64_t tokens, float* memory) {
  return nn::factor_for(w.matrix(matrix).type, tokens, memory, matrix.in);
}

// The gradient of its result.
nn::Factor gradient_of(const MatrixAt& matrix, const Weights& w, int64_t tokens, float* memory) {
  return nn::factor_for(w.matrix(matrix).type, tokens, memory, matrix.out);
}

}  // namespace

Layer::Layer(const Config& config, const LayerLayout& layout, std::shared_ptr<nn::Rope> rope)
    : config_(config), layout_(layout) {
  if (layout.attention_config) {
    attention_.emplace(config, *layout.attention_config, layout.attention, std::move(rope));
    mixer_width_ = layout.attention.out.in;
  } else {
    recurrence_.emplace(config, layout.recurrence);
    mixer_width_ = layout.recurrence.out.in;
  }
}

void Layer::plan(Arena& arena, int64_t tokens, Holds holds, LayerActivations& a) const {
  if (attention_) {
    a.attention = attention_->plan(arena, tokens);
  } else {
    a.recurrence = recurrence_->plan(arena, tokens, holds);
  }
  a.attn_rstd = arena.take(tokens);
  a.mlp_rstd = arena.take(tokens);
  a.gate_up = arena.take(tokens * nn::wide_ld(layout_.gate_up.out));
}

void Layer::forward(const Pass& pass, const Weights& w, const float* before, const float* pending,
                    const LayerActivations& a, const LayerScratch& scratch, LayerState* state, bool fresh_state,
                    float* pending_out) const {
  const int64_t tokens = pass.tokens(), D = config_.hidden_size, F = config_.intermediate_size;
  const int64_t ld = nn::wide_ld(D), ld_gate_up = nn::wide_ld(2 * F);
  const auto eps = static_cast<float>(config_.norm_eps);
  const nn::Factor x = input_of(mixer_in(), w, tokens, scratch.x), y = input_of(mixer_out(), w, tokens, scratch.y);
  if (pending) {
    nn::add_rms_norm_forward(tokens, D, eps, {before, ld}, {pending, ld}, w.vector(layout_.attn_norm), {a.h, ld}, x,
                             a.attn_rstd, pass.threads);
  } else {
    nn::rms_norm_forward(tokens, D, eps, {a.h, ld}, w.vector(layout_.attn_norm), x, a.attn_rstd, pass.threads);
  }
  if (attention_) {
    attention_->forward(pass, w, x, a.attention, state, y);
  } else {
    recurrence_->forward(pass, w, x, a.recurrence, state, fresh_state, y);
  }
  nn::linear(y, tokens, w.matrix(mixer_out()), nullptr, pending_out, ld, false, pass.threads);

  const nn::Factor mlp_x = input_of(layout_.gate_up, w, tokens, scratch.x);
  const nn::Factor product = input_of(layout_.down, w, tokens, scratch.product);
  nn::add_rms_norm_forward(tokens, D, eps, {a.h, ld}, {pending_out, ld}, w.vector(layout_.mlp_norm), {a.h_mid, ld},
                           mlp_x, a.mlp_rstd, pass.threads);
  nn::linear(mlp_x, tokens, w.matrix(layout_.gate_up), nullptr, a.gate_up, ld_gate_up, false, pass.threads);
  nn::swiglu_forward(tokens, F, {a.gate_up, ld_gate_up}, {a.gate_up + F, ld_gate_up}, product, pass.threads);
  nn::linear(product, tokens, w.matrix(layout_.down), nullptr, pending_out, ld, false, pass.threads);
}

void Layer::backward(const Pass& pass, const Weights& w, const LayerActivations& a, const LayerActivations& d,
                     const LayerScratch& scratch, const LayerScratch& dscratch, const Gradients& to, float* dh) const {
  mlp_backward(pass, w, a, d, scratch, dscratch, to, dh);
  mixer_backward(pass, w, a, d, scratch, dscratch, to, dh);
}

void Layer::mlp_backward(const Pass& pass, const Weights& w, const LayerActivations& a, const LayerActivations& d,
                         const LayerScratch& scratch, const LayerScratch& dscratch, const Gradients& to,
                         float* dh) const {
  const int64_t tokens = pass.tokens(), D = config_.hidden_size, F = config_.intermediate_size;
  const int64_t ld = nn::wide_ld(D), ld_gate_up = nn::wide_ld(2 * F);
  const MatrixAt &down = layout_.down, &gate_up = layout_.gate_up;
  // dscratch.x is free until the end, and both products with dh take it rounded.
  const nn::Factor dh_factor = gradient_of(down, w, tokens, dscratch.x);
  const nn::ConstFactor dy = dh_factor.narrow ? nn::ConstFactor(dh_factor) : nn::ConstFactor(dh, ld);
  if (dh_factor.narrow) nn::copy_rows(tokens, D, {dh, ld}, dh_factor, pass.threads);
  nn::linear_backward_input(dy, tokens, w.matrix(down), dscratch.product, nn::wide_ld(F), false, pass.threads);

  const nn::Factor product = input_of(down, w, tokens, scratch.product),
                   dgate_up = gradient_of(gate_up, w, tokens, d.gate_up);
  nn::swiglu_backward(tokens, F, {a.gate_up, ld_gate_up}, {a.gate_up + F, ld_gate_up},
                      {dscratch.product, nn::wide_ld(F)}, dgate_up, dgate_up.from(0, F), product, pass.threads);
  nn::linear_backward_weight(dy, product, tokens, w.matrix(down).type, to.matrix(down), to.add, down.out, down.in,
                             nullptr, pass.threads);

  const nn::Factor x = input_of(gate_up, w, tokens, scratch.x);
  nn::rms_norm_apply(tokens, D, {a.h_mid, ld}, a.mlp_rstd, w.vector(layout_.mlp_norm), x, pass.threads);
  nn::linear_backward(dgate_up, x, tokens, w.matrix(gate_up), dscratch.x, ld, to.matrix(gate_up), to.add, nullptr,
                      pass.threads);
  nn::rms_norm_backward(tokens, D, {a.h_mid, ld}, a.mlp_rstd, w.vector(layout_.mlp_norm), {dscratch.x, ld}, {dh, ld},
                        to.vector(layout_.mlp_norm), pass.threads);
}

void Layer::mixer_backward(const Pass& pass, const Weights& w, const LayerActivations& a, const LayerActivations& d,
                           const LayerScratch& scratch, const LayerScratch& dscratch, const Gradients& to,
                           float* dh) const {
  const int64_t tokens = pass.tokens(), D = config_.hidden_size, ld = nn::wide_ld(D), ldy = nn::wide_ld(mixer_out().in);
  const MatrixAt& out = mixer_out();
  const nn::Factor x = input_of(mixer_in(), w, tokens, scratch.x), y = input_of(out, w, tokens, scratch.y);
  if (attention_) {
    attention_->output(pass, a.attention, y);
  } else {
    recurrence_->output(pass, w, a.recurrence, y);
  }
  nn::linear_backward({dh, ld}, y, tokens, w.matrix(out), dscratch.y, ldy, to.matrix(out), to.add, nullptr,
                      pass.threads);
  nn::rms_norm_apply(tokens, D, {a.h, ld}, a.attn_rstd, w.vector(layout_.attn_norm), x, pass.threads);
  if (attention_) {
    attention_->backward(pass, w, x, a.attention, {dscratch.y, ldy}, d.attention, to, {dscratch.x, ld});
  } else {
    recurrence_->backward(pass, w, x, a.recurrence, {dscratch.y, ldy}, d.recurrence, to, {dscratch.x, ld});
  }
  nn::rms_norm_backward(tokens, D, {a.h, ld}, a.attn_rstd, w.vector(layout_.attn_norm), {dscratch.x, ld}, {dh, ld},
                        to.vector(layout_.attn_norm), pass.threads);
}

}  // namespace deltanet
