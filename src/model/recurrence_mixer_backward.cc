#include <algorithm>
#include <cmath>

#include "model/recurrence_mixer.h"
#include "nn/gated_norm.h"
#include "nn/gates.h"
#include "nn/linear.h"
#include "nn/short_conv.h"

namespace deltanet {
namespace {

// x W^T backwards
void linear_backward(const Pass& pass, const Weights& w, const MatrixAt& at, const nn::ConstFactor& dy,
                     const nn::ConstFactor& x, const Gradients& to, float* dbias, nn::View dx) {
  nn::linear_backward(dy, x, pass.tokens(), w.matrix(at), dx.data, dx.ld, to.matrix(at), to.add, dbias, pass.threads);
}

}  // namespace

void RecurrenceMixer::backward(const Pass& pass, const Weights& w, const nn::Factor& x, const RecurrenceActivations& a,
                               nn::ConstView dy, const RecurrenceActivations& d, const Gradients& to,
                               nn::View dx) const {
  const RecurrenceLayout& l = layout_;
  const int64_t tokens = pass.tokens(), ld = nn::wide_ld(l.in.out);

  nn::gated_norm_backward(output_norm(w), tokens, {a.o, U_ * V_}, gate_of(a), a.o_rstd, dy, {d.o, U_ * V_}, gate_of(d),
                          to.vector(l.o_norm), pass.threads);

  Inputs in = bind(a, tokens, w.vector(l.log_atk_scale), w.vector(l.d));
  in.cu_seqlens = pass.offsets;
  InputGradients gradients = bind(d, tokens, d.log_atk_scale, d.d);
  if (config_.spec.decay == Decay::kConst) gradients.g = {};  // fixed
  OutputGradients upstream;
  upstream.o = Tensor(d.o, {1, tokens, U_, V_});
  deltanet::backward(config_.spec, in, upstream, gradients, options(pass, a));

  if (repeats_) repeat_heads_backward(pass, d);
  if (d.erase) low_rank_factor_backward(pass, a, d);
  gates_backward(pass, w, a, d, to);
  nn::short_conv_backward(convolution(w), pass.offsets, {a.proj, ld}, nullptr, {d.qkv, channels_}, nullptr,
                          {.dx = {d.proj, ld}, .dweight = to.vector(l.conv)}, pass.threads);
  const auto second = [&](Slice low_rank, const MatrixAt& up, const float* dout, float* dbias) {
    if (!up) return;
    linear_backward(pass, w, up, {dout, up.out}, {a.proj + low_rank.column, ld}, to, dbias,
                    {d.proj + low_rank.column, ld});
  };
  second(l.low_rank_decay, l.decay_up, d.decay_in, nullptr);
  second(l.low_rank_gate, l.gate_up, d.gate_in, to.vector(l.gate_bias));
  second(l.low_rank_eta, l.eta_up, d.eta_in, nullptr);
  linear_backward(pass, w, l.in, {d.proj, ld}, x, to, nullptr, dx);
}

void RecurrenceMixer::gates_backward(const Pass& pass, const Weights& w, const RecurrenceActivations& a,
                                     const RecurrenceActivations& d, const Gradients& to) const {
  const RecurrenceLayout& l = layout_;
  const int64_t tokens = pass.tokens(), ld = nn::wide_ld(l.in.out);
  const auto value = [&](Slice slice) { return nn::ConstView{a.proj + slice.column, ld}; };
  const auto gradient = [&](Slice slice) { return nn::View{d.proj + slice.column, ld}; };
  const auto sigmoid = [&](Slice slice, float scale, const float* y, const float* dy) {
    if (!slice) return;
    nn::sigmoid_gate_backward(tokens, slice.width, scale, {y, slice.width}, {dy, slice.width}, gradient(slice),
                              pass.threads);
  };
  const auto decay = [&](nn::ConstView x, int64_t width, int64_t heads, int64_t a_log, int64_t dt_bias, const float* dg,
                         nn::View dx) {
    nn::decay_gate_backward({heads, width, w.vector(a_log), w.vector(dt_bias)}, tokens, x, {dg, width}, dx,
                            to.vector(a_log), to.vector(dt_bias), pass.threads);
  };
  sigmoid(l.beta, config_.allow_neg_eigval ? 2.0f : 1.0f, a.beta, d.beta);
  sigmoid(l.beta_erase, 1.0f, a.beta_erase, d.beta_erase);
  sigmoid(l.atk_beta, 1.0f, a.beta_atk, d.beta_atk);
  if (l.decay) decay(value(l.decay), U_, U_, l.a_log, l.dt_bias, d.g, gradient(l.decay));
  if (l.decay_up) {
    decay({a.decay_in, U_ * K_}, U_ * K_, U_, l.a_log, l.dt_bias, d.g, {d.decay_in, U_ * K_});
  }
  if (l.atk_decay) {
    decay(value(l.atk_decay), l.key_heads, l.key_heads, l.a_log_atk, l.dt_bias_atk, d.g_atk, gradient(l.atk_decay));
  }
  if (l.eta_up) {
    nn::sigmoid_gate_backward(tokens, H_ * K_, eta_scale(), {a.eta, H_ * K_}, {d.eta, H_ * K_}, {d.eta_in, H_ * K_},
                              pass.threads);
  }
  const auto add = [&](const float* from, int64_t offset, int64_t count) {
    for (int64_t i = 0; from && i < count; ++i) to.vectors[offset + i] += from[i];
  };
  add(d.log_atk_scale, l.log_atk_scale, l.key_heads);
  add(d.d, l.d, H_);
  if (d.ridge) {
    const float* lambda = w.vector(l.lambda);
    const int64_t count = layout_.lambda_shape.size() == 1 ? H_ : H_ * K_;
    for (int64_t i = 0; i < count; ++i) to.vectors[l.lambda + i] += d.ridge[i] / (1.0f + std::exp(-lambda[i]));
  }
}

void RecurrenceMixer::repeat_heads_backward(const Pass& pass, const RecurrenceActivations& d) const {
  const int64_t group = U_ / H_, wide = 2 * U_ * K_ + U_;
  for (int64_t token = 0; token < pass.tokens(); ++token) {
    const float* from = d.repeated + token * wide;
    float* to = d.qkv + token * channels_;
    std::fill_n(to, 2 * H_ * K_, 0.0f);
    std::fill_n(d.beta + token * H_, H_, 0.0f);
    for (int64_t u = 0; u < U_; ++u) {
      const int64_t h = u / group;
      for (int64_t i = 0; i < K_; ++i) {
        to[h * K_ + i] += from[u * K_ + i];
        to[(H_ + h) * K_ + i] += from[(U_ + u) * K_ + i];
      }
      d.beta[token * H_ + h] += from[2 * U_ * K_ + u];
    }
  }
}

void RecurrenceMixer::low_rank_factor_backward(const Pass& pass, const RecurrenceActivations& a,
                                               const RecurrenceActivations& d) const {
  const int64_t tokens = pass.tokens(), HK = H_ * K_;
  if (d.low_rank) {
    // b = eta*erase beside a = erase (general), or the only use of both (b = k, free keys).
    const bool add = uses_input(config_.spec, "b");
    for (int64_t i = 0; i < tokens * HK; ++i) {
      d.eta[i] = d.low_rank[i] * a.erase[i];
      d.erase[i] = (add ? d.erase[i] : 0.0f) + d.low_rank[i] * a.eta[i];
    }
  }
  nn::View source = erase_source(a), gradient = erase_source(d);
  // k has a gradient already; head_norm_backward sets, so it goes by way of the scratch that d.low_rank was.
  const bool from_k = !layout_.erase;
  nn::View target = from_k ? nn::View{d.low_rank, HK} : gradient;
  nn::gated_norm_backward(erase_norm(), tokens, source, {}, a.erase_rstd, {d.erase, HK}, target, {}, nullptr,
                          pass.threads);
  if (!from_k) return;
  for (int64_t token = 0; token < tokens; ++token) {
    for (int64_t i = 0; i < HK; ++i) gradient.data[token * gradient.ld + i] += target.data[token * HK + i];
  }
}

}  // namespace deltanet
