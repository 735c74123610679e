#include "model/layer.h"

#include <utility>

#include "nn/linear.h"
#include "nn/rms_norm.h"
#include "nn/swiglu.h"

namespace deltanet {

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

void Layer::plan(Arena& arena, int64_t rows, bool gradients, LayerActivations& a) const {
  if (attention_) {
    a.attention = attention_->plan(arena, rows);
  } else {
    a.recurrence = recurrence_->plan(arena, rows, gradients);
  }
  a.attn_rstd = arena.take(rows);
  a.mlp_rstd = arena.take(rows);
  a.gate_up = arena.take(rows * layout_.gate_up.out);
}

void Layer::forward(const Pass& pass, const Weights& w, const float* before, const float* pending,
                    const LayerActivations& a, const LayerScratch& scratch, LayerState* state, bool fresh_state,
                    float* pending_out) const {
  const int64_t rows = pass.rows(), D = config_.hidden_size, F = config_.intermediate_size;
  const auto eps = static_cast<float>(config_.norm_eps);
  if (pending) {
    nn::add_rms_norm_forward(rows, D, eps, {before, D}, {pending, D}, w.vector(layout_.attn_norm), {a.h, D},
                             {scratch.x, D}, a.attn_rstd, pass.threads);
  } else {
    nn::rms_norm_forward(rows, D, eps, {a.h, D}, w.vector(layout_.attn_norm), {scratch.x, D}, a.attn_rstd,
                         pass.threads);
  }
  if (attention_) {
    attention_->forward(pass, w, scratch.x, a.attention, state, scratch.y);
  } else {
    recurrence_->forward(pass, w, scratch.x, a.recurrence, state, fresh_state, scratch.y);
  }
  const MatrixAt& out = attention_ ? layout_.attention.out : layout_.recurrence.out;
  nn::linear(scratch.y, out.in, rows, w.matrix(out), nullptr, pending_out, D, false, pass.threads);

  nn::add_rms_norm_forward(rows, D, eps, {a.h, D}, {pending_out, D}, w.vector(layout_.mlp_norm), {a.h_mid, D},
                           {scratch.x, D}, a.mlp_rstd, pass.threads);
  nn::linear(scratch.x, D, rows, w.matrix(layout_.gate_up), nullptr, a.gate_up, 2 * F, false, pass.threads);
  nn::swiglu_forward(rows, F, {a.gate_up, 2 * F}, {a.gate_up + F, 2 * F}, {scratch.product, F}, pass.threads);
  nn::linear(scratch.product, F, rows, w.matrix(layout_.down), nullptr, pending_out, D, false, pass.threads);
}

void Layer::backward(const Pass& pass, const Weights& w, const LayerActivations& a, const LayerActivations& d,
                     const LayerScratch& scratch, const LayerScratch& dscratch, float* dmatrices, float* dvectors,
                     float* dh) const {
  mlp_backward(pass, w, a, d, scratch, dscratch, dmatrices, dvectors, dh);
  mixer_backward(pass, w, a, d, scratch, dscratch, dmatrices, dvectors, dh);
}

void Layer::mlp_backward(const Pass& pass, const Weights& w, const LayerActivations& a, const LayerActivations& d,
                         const LayerScratch& scratch, const LayerScratch& dscratch, float* dmatrices, float* dvectors,
                         float* dh) const {
  const int64_t rows = pass.rows(), D = config_.hidden_size, F = config_.intermediate_size;
  const MatrixAt &down = layout_.down, &gate_up = layout_.gate_up;
  nn::linear_backward_input(dh, D, rows, w.matrix(down), dscratch.product, F, false, pass.threads);
  nn::swiglu_backward(rows, F, {a.gate_up, 2 * F}, {a.gate_up + F, 2 * F}, {dscratch.product, F}, {d.gate_up, 2 * F},
                      {d.gate_up + F, 2 * F}, {scratch.product, F}, pass.threads);
  nn::linear_backward_weight(dh, D, scratch.product, F, rows, w.type(), dmatrices + down.offset, down.out, down.in,
                             nullptr, pass.threads);
  nn::rms_norm_apply(rows, D, {a.h_mid, D}, a.mlp_rstd, w.vector(layout_.mlp_norm), {scratch.x, D}, pass.threads);
  nn::linear_backward(d.gate_up, 2 * F, scratch.x, D, rows, w.matrix(gate_up), dscratch.x, D,
                      dmatrices + gate_up.offset, nullptr, pass.threads);
  nn::rms_norm_backward(rows, D, {a.h_mid, D}, a.mlp_rstd, w.vector(layout_.mlp_norm), {dscratch.x, D}, {dh, D},
                        dvectors + layout_.mlp_norm, pass.threads);
}

void Layer::mixer_backward(const Pass& pass, const Weights& w, const LayerActivations& a, const LayerActivations& d,
                           const LayerScratch& scratch, const LayerScratch& dscratch, float* dmatrices, float* dvectors,
                           float* dh) const {
  const int64_t rows = pass.rows(), D = config_.hidden_size;
  const MatrixAt& out = attention_ ? layout_.attention.out : layout_.recurrence.out;
  if (attention_) {
    attention_->output(pass, a.attention, scratch.y);
  } else {
    recurrence_->output(pass, w, a.recurrence, scratch.y);
  }
  nn::linear_backward(dh, D, scratch.y, out.in, rows, w.matrix(out), dscratch.y, out.in, dmatrices + out.offset,
                      nullptr, pass.threads);
  nn::rms_norm_apply(rows, D, {a.h, D}, a.attn_rstd, w.vector(layout_.attn_norm), {scratch.x, D}, pass.threads);
  if (attention_) {
    attention_->backward(pass, w, scratch.x, a.attention, dscratch.y, d.attention, dmatrices, dvectors, dscratch.x);
  } else {
    recurrence_->backward(pass, w, scratch.x, a.recurrence, dscratch.y, d.recurrence, dmatrices, dvectors, dscratch.x);
  }
  nn::rms_norm_backward(rows, D, {a.h, D}, a.attn_rstd, w.vector(layout_.attn_norm), {dscratch.x, D}, {dh, D},
                        dvectors + layout_.attn_norm, pass.threads);
}

}  // namespace deltanet
