#include "model/recurrence_mixer.h"

#include <algorithm>
#include <cmath>

#include "nn/gated_norm.h"
#include "nn/gates.h"
#include "nn/linear.h"
#include "nn/short_conv.h"

namespace deltanet {
namespace {

constexpr double kL2Eps = 1e-6;          // of the normalized erase keys
constexpr float kSmallestRidge = 0.25f;  // MesaNet's lower bound

double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }

// [1,T,heads,width] in a matrix with `columns` columns.
Tensor heads_of(float* data, int64_t tokens, int64_t heads, int64_t width, int64_t columns) {
  Tensor view(data, {1, tokens, heads, width});
  view.stride = {tokens * columns, columns, width, 1};
  return view;
}

nn::GateActivation activation(OutputGate gate) {
  switch (gate) {
    case OutputGate::kNone:
      return nn::GateActivation::kNone;
    case OutputGate::kSilu:
      return nn::GateActivation::kSilu;
    case OutputGate::kSigmoid:
    case OutputGate::kSigmoidLowRank:
      return nn::GateActivation::kSigmoid;
  }
  return nn::GateActivation::kNone;
}

}  // namespace

RecurrenceMixer::RecurrenceMixer(const Config& config, const RecurrenceLayout& layout)
    : config_(config),
      layout_(layout),
      H_(config.num_heads),
      U_(config.num_v_heads),
      K_(config.head_dim),
      V_(config.head_v_dim),
      channels_(2 * H_ * K_ + U_ * V_),
      repeats_(layout.key_heads > config.num_heads),
      unit_scale_(K_, 1.0f / std::sqrt(static_cast<float>(K_))),
      unit_taps_(layout.conv == kAbsent ? channels_ : 0, 1.0f) {}

RecurrenceActivations RecurrenceMixer::plan(Arena& arena, int64_t tokens, Holds holds) const {
  const RecurrenceLayout& l = layout_;
  const int64_t HK = H_ * K_, atk_heads = l.key_heads;
  const auto take = [&](bool wanted, int64_t count) { return wanted ? arena.take(count) : nullptr; };
  RecurrenceActivations a;
  a.proj = arena.take(tokens * nn::wide_ld(l.in.out));
  a.qkv = arena.take(tokens * channels_);
  a.decay_in = take(bool(l.decay_up), tokens * U_ * K_);
  a.gate_in = take(bool(l.gate_up), tokens * U_ * V_);
  a.eta_in = take(bool(l.eta_up), tokens * HK);
  switch (config_.spec.decay) {
    case Decay::kNone:
      break;
    case Decay::kConst:
      a.g = arena.take(U_);
      break;
    case Decay::kScalar:
      a.g = arena.take(tokens * U_);
      break;
    case Decay::kDiag:
      a.g = arena.take(tokens * U_ * K_);
      break;
  }
  a.beta = take(bool(l.beta), tokens * l.beta.width);
  a.beta_erase = take(bool(l.beta_erase), tokens * U_);
  a.g_atk = take(bool(l.atk_decay), tokens * atk_heads);
  a.beta_atk = take(bool(l.atk_beta), tokens * atk_heads);
  a.erase = take(l.gated_key, tokens * HK);
  a.erase_rstd = take(l.gated_key, tokens * H_);
  a.eta = take(bool(l.eta_up), tokens * HK);
  a.low_rank = take(l.eta_up && !uses_input(config_.spec, "eta"), tokens * HK);
  a.repeated = take(repeats_, tokens * (2 * U_ * K_ + U_));
  a.ridge = take(l.lambda != kAbsent, HK);
  a.writes = take(holds == Holds::kTape && config_.spec.solve != Solve::kOffline, tokens * U_ * V_);
  a.o = arena.take(tokens * U_ * V_);
  a.o_rstd = arena.take(tokens * U_);
  const bool gradients = holds == Holds::kGradients;
  a.log_atk_scale = take(gradients && l.log_atk_scale != kAbsent, atk_heads);
  a.d = take(gradients && l.d != kAbsent, H_);
  return a;
}

// ---- the inputs of the recurrence, from the activations; the same for values and for gradients

template <class Float>
InputsOf<BasicTensor<Float>> RecurrenceMixer::bind(const RecurrenceActivations& a, int64_t tokens, Float* log_atk_scale,
                                                   Float* d) const {
  using View = BasicTensor<Float>;
  const Spec& spec = config_.spec;
  const int64_t HK = H_ * K_;
  InputsOf<View> in;
  in.v = heads_of(a.qkv + 2 * HK, tokens, U_, V_, channels_);
  if (repeats_) {
    const int64_t wide = 2 * U_ * K_ + U_;
    in.q = heads_of(a.repeated, tokens, U_, K_, wide);
    in.k = heads_of(a.repeated + U_ * K_, tokens, U_, K_, wide);
    in.beta = Tensor(a.repeated + 2 * U_ * K_, {1, tokens, U_});
    in.beta.stride = {tokens * wide, wide, 1, 0};
  } else {
    in.q = heads_of(a.qkv, tokens, H_, K_, channels_);
    in.k = heads_of(a.qkv + HK, tokens, H_, K_, channels_);
    if (a.beta) in.beta = Tensor(a.beta, {1, tokens, U_});
  }
  if (spec.decay == Decay::kConst) in.g = Tensor(a.g, {U_});
  if (spec.decay == Decay::kScalar) in.g = Tensor(a.g, {1, tokens, U_});
  if (spec.decay == Decay::kDiag) in.g = Tensor(a.g, {1, tokens, U_, K_});
  if (a.beta_erase) in.beta_erase = Tensor(a.beta_erase, {1, tokens, U_});
  if (a.g_atk) in.g_atk = Tensor(a.g_atk, {1, tokens, layout_.key_heads});
  if (a.beta_atk) in.beta_atk = Tensor(a.beta_atk, {1, tokens, layout_.key_heads});
  if (layout_.log_atk_scale != kAbsent) in.log_atk_scale = View(log_atk_scale, {layout_.key_heads});
  if (layout_.d != kAbsent) in.d = View(d, {H_});
  if (a.ridge) in.ridge = Tensor(a.ridge, layout_.lambda_shape);
  const auto keys = [&](float* data) { return Tensor(data, {1, tokens, H_, K_}); };
  if (layout_.free_write) in.k_write = keys(a.low_rank);
  if (layout_.free_erase) in.k_erase = keys(a.low_rank);
  if (spec.solve == Solve::kDplr) {
    switch (spec.tying) {
      case Tying::kGeneral:
        in.a = keys(a.erase);
        in.b = keys(a.low_rank);
        break;
      case Tying::kAEqB:
        in.a = keys(a.erase);
        break;
      case Tying::kBEqK:
        in.a = keys(a.low_rank);
        break;
      case Tying::kRwkv7:
        in.kk = keys(a.erase);
        in.eta = keys(a.eta);
        break;
    }
  }
  return in;
}

template Inputs RecurrenceMixer::bind(const RecurrenceActivations&, int64_t, const float*, const float*) const;
template InputGradients RecurrenceMixer::bind(const RecurrenceActivations&, int64_t, float*, float*) const;

// ---- forward

void RecurrenceMixer::gates(const Pass& pass, const Weights& w, const RecurrenceActivations& a) const {
  const RecurrenceLayout& l = layout_;
  const int64_t tokens = pass.tokens(), ld = nn::wide_ld(l.in.out);
  const auto column = [&](Slice slice) { return nn::ConstView{a.proj + slice.column, ld}; };
  const auto sigmoid = [&](Slice slice, float scale, float* y) {
    if (slice) nn::sigmoid_gate_forward(tokens, slice.width, scale, column(slice), {y, slice.width}, pass.threads);
  };
  const auto decay = [&](nn::ConstView x, int64_t width, int64_t heads, int64_t a_log, int64_t dt_bias, float* g) {
    nn::decay_gate_forward({heads, width, w.vector(a_log), w.vector(dt_bias)}, tokens, x, {g, width}, pass.threads);
  };
  sigmoid(l.beta, config_.allow_neg_eigval ? 2.0f : 1.0f, a.beta);
  sigmoid(l.beta_erase, 1.0f, a.beta_erase);
  sigmoid(l.atk_beta, 1.0f, a.beta_atk);
  if (l.decay) decay(column(l.decay), U_, U_, l.a_log, l.dt_bias, a.g);
  if (l.decay_up) decay({a.decay_in, U_ * K_}, U_ * K_, U_, l.a_log, l.dt_bias, a.g);
  if (l.atk_decay) decay(column(l.atk_decay), l.key_heads, l.key_heads, l.a_log_atk, l.dt_bias_atk, a.g_atk);
  if (l.eta_up) {
    nn::sigmoid_gate_forward(tokens, H_ * K_, eta_scale(), {a.eta_in, H_ * K_}, {a.eta, H_ * K_}, pass.threads);
  }
  if (config_.spec.decay == Decay::kConst) {
    // RetNet's fixed decays, 1 - 2^(-5-h).
    for (int64_t h = 0; h < U_; ++h) a.g[h] = static_cast<float>(std::log1p(-std::exp2(-5.0 - static_cast<double>(h))));
  }
  if (a.ridge) {
    const float* lambda = w.vector(l.lambda);
    const int64_t count = layout_.lambda_shape.size() == 1 ? H_ : H_ * K_;
    for (int64_t i = 0; i < count; ++i) a.ridge[i] = kSmallestRidge + static_cast<float>(softplus(lambda[i]));
  }
}

void RecurrenceMixer::forward(const Pass& pass, const Weights& w, const nn::Factor& x, const RecurrenceActivations& a,
                              LayerState* state, bool fresh_state, const nn::Factor& y) const {
  const RecurrenceLayout& l = layout_;
  const int64_t tokens = pass.tokens(), ld = nn::wide_ld(l.in.out);
  nn::linear(x, tokens, w.matrix(l.in), nullptr, a.proj, ld, false, pass.threads);
  const auto second = [&](Slice low_rank, const MatrixAt& up, const float* bias, float* out) {
    if (!up) return;
    nn::linear({a.proj + low_rank.column, ld}, tokens, w.matrix(up), bias, out, up.out, false, pass.threads);
  };
  second(l.low_rank_decay, l.decay_up, nullptr, a.decay_in);
  second(l.low_rank_gate, l.gate_up, w.vector(l.gate_bias), a.gate_in);
  second(l.low_rank_eta, l.eta_up, nullptr, a.eta_in);

  float* tail = state && !state->conv.empty() ? state->conv.data() : nullptr;
  nn::short_conv_forward(convolution(w), pass.offsets, {a.proj, ld}, fresh_state ? nullptr : tail, {a.qkv, channels_},
                         tail, pass.threads);
  gates(pass, w, a);
  if (a.erase) low_rank_factor(pass, a);
  if (repeats_) repeat_heads(pass, a);

  Inputs in = bind(a, tokens, w.vector(l.log_atk_scale), w.vector(l.d));
  in.cu_seqlens = pass.offsets;
  Outputs out;
  out.o = heads_of(a.o, tokens, U_, V_, U_ * V_);
  if (state) bind_state(*state, pass.sequences(), fresh_state, in, out);
  deltanet::forward(config_.spec, in, out, options(pass, a));
  output(pass, w, a, y);
}

// One token per sequence is what the recurrent form is made for. It has nothing to hand on to the backward pass, which
// is in chunk form always.
Options RecurrenceMixer::options(const Pass& pass, const RecurrenceActivations& a) const {
  Options options{.threads = pass.threads};
  if (pass.tokens() == pass.sequences()) {
    options.mode = Mode::kRecurrent;
  } else if (a.writes) {
    options.writes = heads_of(a.writes, pass.tokens(), U_, V_, U_ * V_);
  }
  return options;
}

nn::ShortConv RecurrenceMixer::convolution(const Weights& w) const {
  if (layout_.conv == kAbsent) return {channels_, 1, unit_taps_.data(), nullptr, /*silu=*/true};
  return {channels_, config_.conv_size, w.vector(layout_.conv), nullptr, /*silu=*/true};
}

nn::GatedNorm RecurrenceMixer::output_norm(const Weights& w) const {
  return {U_, V_, static_cast<float>(config_.norm_eps), activation(config_.output_gate), w.vector(layout_.o_norm)};
}

// An RMS norm with weights K^-1/2 is an L2 norm.
nn::GatedNorm RecurrenceMixer::erase_norm() const {
  return {H_, K_, static_cast<float>(kL2Eps / static_cast<double>(K_)), nn::GateActivation::kNone, unit_scale_.data()};
}

void RecurrenceMixer::bind_state(LayerState& state, int64_t N, bool fresh, Inputs& in, Outputs& out) const {
  const int64_t H = layout_.key_heads;
  out.S_final = Tensor(state.S.data(), {N, U_, K_, V_});
  if (!state.A.empty()) out.A_final = Tensor(state.A.data(), {N, H, K_});
  if (!state.P.empty()) out.P_final = Tensor(state.P.data(), {N, H, K_, K_});
  if (!state.G.empty()) out.G_final = Tensor(state.G.data(), {N, H, K_, K_});
  if (fresh) return;
  in.S0 = out.S_final;
  in.A0 = out.A_final;
  in.P0 = out.P_final;
  in.G0 = out.G_final;
  if (in.P0 && in.ridge.rank == 1) in.ridge = {};  // it only makes the first P
}

void RecurrenceMixer::output(const Pass& pass, const Weights& w, const RecurrenceActivations& a,
                             const nn::Factor& y) const {
  nn::gated_norm_forward(output_norm(w), pass.tokens(), {a.o, U_ * V_}, gate_of(a), y, a.o_rstd, pass.threads);
}

// The output gate before its activation.
nn::View RecurrenceMixer::gate_of(const RecurrenceActivations& a) const {
  if (layout_.gate) return {a.proj + layout_.gate.column, nn::wide_ld(layout_.in.out)};
  if (layout_.gate_up) return {a.gate_in, U_ * V_};
  return {};
}

// q, k and beta once per value head.
void RecurrenceMixer::repeat_heads(const Pass& pass, const RecurrenceActivations& a) const {
  const int64_t group = U_ / H_, wide = 2 * U_ * K_ + U_;
  for (int64_t token = 0; token < pass.tokens(); ++token) {
    const float* from = a.qkv + token * channels_;
    float* to = a.repeated + token * wide;
    for (int64_t u = 0; u < U_; ++u) {
      std::copy_n(from + u / group * K_, K_, to + u * K_);
      std::copy_n(from + (H_ + u / group) * K_, K_, to + (U_ + u) * K_);
      to[2 * U_ * K_ + u] = a.beta[token * H_ + u / group];
    }
  }
}

// The erase key, normalized per head, and its gated form where there is one.
void RecurrenceMixer::low_rank_factor(const Pass& pass, const RecurrenceActivations& a) const {
  nn::gated_norm_forward(erase_norm(), pass.tokens(), erase_source(a), {}, {a.erase, H_ * K_}, a.erase_rstd,
                         pass.threads);
  if (!a.low_rank) return;
  for (int64_t i = 0; i < pass.tokens() * H_ * K_; ++i) a.low_rank[i] = a.eta[i] * a.erase[i];
}

// A free write key is k times gates in (0, 2), as the widest of the paper's preconditioners; all others are in (0, 1).
float RecurrenceMixer::eta_scale() const { return layout_.free_write ? 2.0f : 1.0f; }

// Where the erase key comes from: a projection of its own, or k.
nn::View RecurrenceMixer::erase_source(const RecurrenceActivations& a) const {
  if (layout_.erase) return {a.proj + layout_.erase.column, nn::wide_ld(layout_.in.out)};
  return {a.qkv + H_ * K_, channels_};
}

}  // namespace deltanet
