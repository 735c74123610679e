#include "model/attention_mixer.h"

#include <utility>
#include <vector>

#include "nn/attention/attention.h"
#include "nn/gated_norm.h"
#include "nn/linear.h"

namespace deltanet {

AttentionMixer::AttentionMixer(const Config& config, const AttentionConfig& attention, const AttentionLayout& layout,
                               std::shared_ptr<nn::Rope> rope)
    : config_(config), attention_(attention), layout_(layout), rope_(std::move(rope)) {}

AttentionActivations AttentionMixer::plan(Arena& arena, int64_t tokens) const {
  const AttentionLayout& l = layout_;
  return {.proj = arena.take(tokens * nn::wide_ld(l.in.out)),
          .rotated = arena.take(tokens * (l.q.width + l.k.width)),
          .rstd = arena.take(tokens * (l.heads + l.kv_heads)),
          .o = arena.take(tokens * l.q.width),
          .lse = arena.take(tokens * l.heads)};
}

void AttentionMixer::forward(const Pass& pass, const Weights& w, const nn::Factor& x, const AttentionActivations& a,
                             LayerState* state, const nn::Factor& y) const {
  const AttentionLayout& l = layout_;
  const int64_t tokens = pass.tokens(), ld = nn::wide_ld(l.in.out), rotated = l.q.width + l.k.width;
  nn::linear(x, tokens, w.matrix(l.in), w.vector(l.bias), a.proj, ld, false, pass.threads);

  float *q = a.rotated, *k = a.rotated + l.q.width;
  if (attention_.qk_norm) {
    const auto norm = [&](Slice slice, int64_t heads, int64_t weight, float* rstd, float* out) {
      nn::gated_norm_forward(norm_of(w, heads, weight), tokens, {a.proj + slice.column, ld}, {}, {out, rotated}, rstd,
                             pass.threads);
    };
    norm(l.q, l.heads, l.q_norm, a.rstd, q);
    norm(l.k, l.kv_heads, l.k_norm, a.rstd + tokens * l.heads, k);
  } else {
    nn::copy_rows(tokens, rotated, {a.proj, ld}, {a.rotated, rotated}, pass.threads);
  }
  thread_local std::vector<int64_t> starts;  // decoding allocates nothing
  starts.clear();
  if (state) {
    for (const auto& sequence : state->cache.sequences) starts.push_back(sequence.length);
  }
  rope_->forward(pass.offsets, starts, l.heads, q, rotated, pass.threads);
  rope_->forward(pass.offsets, starts, l.kv_heads, k, rotated, pass.threads);

  nn::Attention attention = arguments(pass, a);
  if (state) attention.past = &state->cache;
  nn::attention_forward(attention, a.o, l.q.width, a.lse, pass.threads);
  if (state) state->cache.append(pass.offsets, k, rotated, a.proj + l.v.column, ld);
  output(pass, a, y);
}

nn::GatedNorm AttentionMixer::norm_of(const Weights& w, int64_t heads, int64_t weight) const {
  return {heads, layout_.head_dim, static_cast<float>(config_.norm_eps), nn::GateActivation::kNone, w.vector(weight)};
}

nn::Attention AttentionMixer::arguments(const Pass& pass, const AttentionActivations& a) const {
  const AttentionLayout& l = layout_;
  const int64_t rotated = l.q.width + l.k.width;
  return {.query_heads = l.heads,
          .key_heads = l.kv_heads,
          .head_dim = l.head_dim,
          .window = attention_.window,
          .offsets = pass.offsets,
          .q = a.rotated,
          .ldq = rotated,
          .k = a.rotated + l.q.width,
          .ldk = rotated,
          .v = a.proj + l.v.column,
          .ldv = nn::wide_ld(l.in.out)};
}

void AttentionMixer::output(const Pass& pass, const AttentionActivations& a, const nn::Factor& y) const {
  nn::copy_rows(pass.tokens(), layout_.q.width, {a.o, layout_.q.width}, y, pass.threads);
}

void AttentionMixer::backward(const Pass& pass, const Weights& w, const nn::Factor& x, const AttentionActivations& a,
                              nn::ConstView dy, const AttentionActivations& d, const Gradients& to, nn::View dx) const {
  const AttentionLayout& l = layout_;
  const int64_t tokens = pass.tokens(), ld = nn::wide_ld(l.in.out), rotated = l.q.width + l.k.width;
  float *dq = d.rotated, *dk = d.rotated + l.q.width;
  nn::attention_backward(arguments(pass, a),
                         {.o = a.o,
                          .ldo = l.q.width,
                          .lse = a.lse,
                          .d_o = dy.data,
                          .lddo = dy.ld,
                          .dq = dq,
                          .lddq = rotated,
                          .dk = dk,
                          .lddk = rotated,
                          .dv = d.proj + l.v.column,
                          .lddv = ld},
                         pass.threads);
  rope_->backward(pass.offsets, {}, l.heads, dq, rotated, pass.threads);
  rope_->backward(pass.offsets, {}, l.kv_heads, dk, rotated, pass.threads);
  if (attention_.qk_norm) {
    const auto norm = [&](Slice slice, int64_t heads, int64_t weight, const float* rstd, const float* dout) {
      nn::gated_norm_backward(norm_of(w, heads, weight), tokens, {a.proj + slice.column, ld}, {}, rstd, {dout, rotated},
                              {d.proj + slice.column, ld}, {}, to.vector(weight), pass.threads);
    };
    norm(l.q, l.heads, l.q_norm, a.rstd, dq);
    norm(l.k, l.kv_heads, l.k_norm, a.rstd + tokens * l.heads, dk);
  } else {
    nn::copy_rows(tokens, rotated, {d.rotated, rotated}, {d.proj, ld}, pass.threads);
  }
  nn::linear_backward({d.proj, ld}, x, tokens, w.matrix(l.in), dx.data, dx.ld, to.matrix(l.in), to.add,
                      to.vector(l.bias), pass.threads);
}

}  // namespace deltanet
