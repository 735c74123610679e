// Where a model stopped being finite: a pass that looks at what every part hands on.

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/interrupt.h"
#include "deltanet/error.h"
#include "model/language_model.h"
#include "nn/embedding.h"
#include "nn/rms_norm.h"

namespace deltanet {
namespace {

bool all_finite(const float* values, int64_t count) {
  return std::all_of(values, values + count, [](float x) { return std::isfinite(x); });
}

bool all_finite(nn::ConstView rows, int64_t count, int64_t columns) {
  for (int64_t row = 0; row < count; ++row) {
    if (!all_finite(rows.row(row), columns)) return false;
  }
  return true;
}

bool is_finite(const LayerState& state) {
  const auto finite = [](const std::vector<float>& values) {
    return all_finite(values.data(), static_cast<int64_t>(values.size()));
  };
  // Of a cache only what is used has values; what it holds comes from the layers before.
  return finite(state.S) && finite(state.A) && finite(state.P) && finite(state.G) && finite(state.conv);
}

// The first parameter of this beginning of a name that has a value which is not finite.
std::string spoiled_parameter(const Weights& weights, std::string_view prefix, int threads) {
  std::vector<float> values;
  for (const Parameter& parameter : weights.layout().parameters()) {
    if (!parameter.name.starts_with(prefix)) continue;
    values.resize(static_cast<std::size_t>(parameter.size));
    weights.copy_values(parameter, values.data(), threads);
    if (!all_finite(values.data(), parameter.size)) return parameter.name;
  }
  return {};
}

}  // namespace

std::string LanguageModel::first_not_finite(std::span<const int32_t> ids, std::span<const int64_t> offsets,
                                            const State* state) {
  const InterruptScope whole(nullptr);
  const Pass pass = check(ids, offsets, state);
  const auto described = [&](const std::string& place, const std::string& prefix) {
    const std::string parameter = spoiled_parameter(weights(), prefix, threads_);
    return place + (parameter.empty() ? "" : ", whose weight " + parameter + " is not finite");
  };
  plan(pass.tokens(), Keep::kNothing);
  const int64_t tokens = pass.tokens(), D = config().hidden_size, ld = nn::wide_ld(D);
  std::optional<State> copy;
  if (state) copy = *state;
  nn::embedding_forward(tokens, ids.data(), weights_->matrix(layout().embeddings()), {activations_.front().h, ld},
                        pass.threads);
  if (!all_finite({activations_.front().h, ld}, tokens, D)) return described("the embeddings", "model.embeddings");
  const float *before = nullptr, *pending = nullptr;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const std::string layer = "layer " + std::to_string(i) + ", ", prefix = "model.layers." + std::to_string(i) + ".";
    if (copy && !is_finite(copy->layers()[i])) return described(layer + "the state that it carries on", prefix);
    layers_[i].forward(pass, *weights_, before, pending, activations_[i], scratch_, copy ? &copy->layers()[i] : nullptr,
                       !copy || copy->fresh(), pending_);
    before = activations_[i].h_mid;
    pending = pending_;
    if (!all_finite({before, ld}, tokens, D)) {
      const bool attends = layout().layers()[i].attention_config != nullptr;
      return described(layer + (attends ? "the attention" : "the recurrence (" + config().row + ")"), prefix);
    }
    if (!all_finite({pending, ld}, tokens, D)) return described(layer + "the MLP", prefix);
  }
  nn::add_rms_norm_forward(tokens, D, static_cast<float>(config().norm_eps), {before, ld}, {pending, ld},
                           weights_->vector(layout().final_norm()), {h_final_, ld}, {scratch_.x, ld}, final_rstd_,
                           pass.threads);
  if (!all_finite({scratch_.x, ld}, tokens, D)) return described("the last norm", "model.norm");
  return {};
}

void LanguageModel::fail_not_finite(const char* what, std::span<const int32_t> ids, std::span<const int64_t> offsets,
                                    const State* state) {
  // What the tokens do by themselves comes first: the state has gone on meanwhile, and spreads what is wrong.
  std::string place = first_not_finite(ids, offsets, nullptr);
  if (place.empty() && state) place = first_not_finite(ids, offsets, state);
  if (place.empty()) {
    const std::string parameter = spoiled_parameter(weights(), "lm_head", threads_);
    place = "the head" + (parameter.empty() ? "" : ", whose weight " + parameter + " is not finite");
  }
  throw NotFiniteError("[model] " + std::string(what) + " are not finite; what first is not is that of " + place);
}

}  // namespace deltanet
