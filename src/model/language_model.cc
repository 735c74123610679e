#include "model/language_model.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "deltanet/error.h"
#include "nn/cross_entropy.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/rms_norm.h"

namespace deltanet {
namespace {

void check_ids(std::span<const int32_t> ids, int64_t vocab_size, const char* name, bool may_ignore) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocab_size) continue;
    if (may_ignore && ids[i] == nn::kIgnoredLabel) continue;
    throw Error("[model] " + std::string(name) + "[" + std::to_string(i) + "]: given " + std::to_string(ids[i]) +
                "; expected 0 to " + std::to_string(vocab_size - 1) + ", the vocabulary of the model" +
                (may_ignore ? ", or -100 for none" : ""));
  }
}

}  // namespace

LanguageModel::LanguageModel(std::shared_ptr<const Weights> weights, int threads)
    : weights_(std::move(weights)), threads_(threads) {
  std::map<std::pair<int64_t, double>, std::shared_ptr<nn::Rope>> ropes;
  for (const LayerLayout& layer : layout().layers()) {
    std::shared_ptr<nn::Rope> rope;
    if (layer.attention_config) {
      auto& shared = ropes[{layer.attention.head_dim, layer.attention_config->rope_theta}];
      if (!shared) shared = std::make_shared<nn::Rope>(layer.attention.head_dim, layer.attention_config->rope_theta);
      rope = shared;
    }
    layers_.emplace_back(config(), layer, rope);
  }
}

// ---- memory

void LanguageModel::plan(int64_t tokens, Keep keep) {
  // What a backward pass needs holds an inference as well.
  if (tokens <= planned_tokens_ && (keep == planned_keep_ || keep == Keep::kNothing)) return;
  arena_.release();
  planned_tokens_ = 0;  // nothing is planned if the memory runs out below
  const int64_t ld = nn::wide_ld(config().hidden_size);
  int64_t width = 0;
  for (const Layer& layer : layers_) width = std::max(width, layer.mixer_width());
  const auto scratch = [&] {
    return LayerScratch{arena_.take(tokens * ld), arena_.take(tokens * nn::wide_ld(width)),
                        arena_.take(tokens * nn::wide_ld(config().intermediate_size))};
  };
  scratch_ = scratch();
  pending_ = arena_.take(tokens * ld);
  h_final_ = arena_.take(tokens * ld);
  final_rstd_ = arena_.take(tokens);

  // Layers of one kind have the same sizes, so one of each kind can lend its buffers to all others.
  activations_.assign(layers_.size(), {});
  std::map<const AttentionConfig*, LayerActivations> shared;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    LayerActivations& lent = shared[layout().layers()[i].attention_config];
    LayerActivations& own = activations_[i];
    if (keep == Keep::kAll) {
      layer.plan(arena_, tokens, Holds::kTape, own);
      own.h = arena_.take(tokens * ld);
      own.h_mid = arena_.take(tokens * ld);
      continue;
    }
    if (!lent.gate_up) layer.plan(arena_, tokens, keep == Keep::kNothing ? Holds::kValues : Holds::kTape, lent);
    own = lent;
    if (keep == Keep::kNothing) {
      own.h = own.h_mid = h_final_;  // the sum runs on in place
    } else {
      own.h = arena_.take(tokens * ld);
      own.h_mid = h_final_;
    }
  }
  if (keep != Keep::kNothing) {
    vocabulary_loss_.plan(weights_->matrix(layout().head()));
    dscratch_ = scratch();
    dh_ = arena_.take(tokens * ld);
    gradients_.clear();
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      LayerActivations& d = gradients_[layout().layers()[i].attention_config];
      if (!d.gate_up) layers_[i].plan(arena_, tokens, Holds::kGradients, d);
    }
  }
  planned_tokens_ = tokens;
  planned_keep_ = keep;
}

Pass LanguageModel::check(std::span<const int32_t> ids, std::span<const int64_t> offsets, const State* state) const {
  const auto tokens = static_cast<int64_t>(ids.size());
  bool valid = offsets.size() >= 2 && offsets.front() == 0 && offsets.back() == tokens;
  for (std::size_t i = 1; valid && i < offsets.size(); ++i) valid = offsets[i] > offsets[i - 1];
  if (!valid) {
    throw Error("[model] offsets: expected increasing numbers from 0 to the number of tokens, " +
                std::to_string(tokens) + "; every sequence needs at least one token");
  }
  if (state && state->sequences() != static_cast<int64_t>(offsets.size()) - 1) {
    throw Error("[model] state: holds " + std::to_string(state->sequences()) + " sequences; expected " +
                std::to_string(offsets.size() - 1) + " as in the batch");
  }
  check_ids(ids);
  return {offsets, threads_};
}

void LanguageModel::check_ids(std::span<const int32_t> ids) const {
  deltanet::check_ids(ids, config().vocab_size, "ids", false);
}

void LanguageModel::check_targets(std::span<const int32_t> targets) const {
  deltanet::check_ids(targets, config().vocab_size, "targets", true);
}

// ---- forward

void LanguageModel::run_layers(const Pass& pass, std::span<const int32_t> ids, State* state) {
  const int64_t tokens = pass.tokens(), D = config().hidden_size, ld = nn::wide_ld(D);
  const Weights& w = *weights_;
  const bool fresh = !state || state->fresh();
  nn::embedding_forward(tokens, ids.data(), w.matrix(layout().embeddings()), {activations_.front().h, ld},
                        pass.threads);
  const float *before = nullptr, *pending = nullptr;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    layers_[i].forward(pass, w, before, pending, activations_[i], scratch_, state ? &state->layers()[i] : nullptr,
                       fresh, pending_);
    before = activations_[i].h_mid;
    pending = pending_;
  }
  nn::add_rms_norm_forward(tokens, D, static_cast<float>(config().norm_eps), {before, ld}, {pending, ld},
                           w.vector(layout().final_norm()), {h_final_, ld}, {scratch_.x, ld}, final_rstd_,
                           pass.threads);
  if (state) state->note(ids, pass.offsets);
}

void LanguageModel::next_logits(std::span<const int32_t> ids, std::span<const int64_t> offsets, State* state,
                                float* logits) {
  const Pass pass = check(ids, offsets, state);
  plan(pass.tokens(), Keep::kNothing);
  run_layers(pass, ids, state);
  const int64_t D = config().hidden_size, ld = nn::wide_ld(D), N = pass.sequences();
  for (int64_t n = 0; n < N; ++n) {  // to the front: token n is not read again
    std::copy_n(scratch_.x + (offsets[n + 1] - 1) * ld, D, scratch_.x + n * ld);
  }
  nn::linear({scratch_.x, ld}, N, weights_->matrix(layout().head()), nullptr, logits, config().vocab_size, false,
             pass.threads);
  const auto is_finite = [](float x) { return std::isfinite(x); };
  if (!std::all_of(logits, logits + N * config().vocab_size, is_finite)) fail_not_finite("logits", ids, offsets, state);
}

void LanguageModel::all_logits(std::span<const int32_t> ids, std::span<const int64_t> offsets, State* state,
                               float* logits) {
  const Pass pass = check(ids, offsets, state);
  plan(pass.tokens(), Keep::kNothing);
  run_layers(pass, ids, state);
  nn::linear({scratch_.x, nn::wide_ld(config().hidden_size)}, pass.tokens(), weights_->matrix(layout().head()), nullptr,
             logits, config().vocab_size, false, pass.threads);
}

double LanguageModel::loss(std::span<const int32_t> ids, std::span<const int32_t> targets,
                           std::span<const int64_t> offsets) {
  const Pass pass = check_with_targets(ids, targets, offsets, nullptr);
  plan(pass.tokens(), Keep::kNothing);
  run_layers(pass, ids, nullptr);
  return vocabulary_loss_(weights_->matrix(layout().head()), pass.tokens(),
                          {scratch_.x, nn::wide_ld(config().hidden_size)}, targets.data(), 1.0f, 0.0f, {}, nullptr,
                          false, pass.threads);
}

void LanguageModel::log_probs(std::span<const int32_t> ids, std::span<const int32_t> targets,
                              std::span<const int64_t> offsets, State* state, double* log_prob, bool* greedy) {
  check_with_targets(ids, targets, offsets, state);
  std::vector<nn::Target> asked;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] != nn::kIgnoredLabel) asked.push_back({static_cast<int64_t>(i), targets[i]});
  }
  log_probs(ids, asked, offsets, state, log_prob, greedy);
  for (std::size_t i = targets.size(), last = asked.size(); i-- > 0;) {  // to their places, from the back
    const bool is_asked = last > 0 && asked[last - 1].token == static_cast<int64_t>(i);
    last -= is_asked ? 1 : 0;
    log_prob[i] = is_asked ? log_prob[last] : 0.0;
    greedy[i] = is_asked && greedy[last];
  }
}

void LanguageModel::log_probs(std::span<const int32_t> ids, std::span<const nn::Target> targets,
                              std::span<const int64_t> offsets, State* state, double* log_prob, bool* greedy) {
  const Pass pass = check(ids, offsets, state);
  plan(pass.tokens(), Keep::kNothing);
  run_layers(pass, ids, state);
  vocabulary_loss_.log_probs(weights_->matrix(layout().head()), {scratch_.x, nn::wide_ld(config().hidden_size)},
                             targets, log_prob, greedy, pass.threads);
  const auto is_finite = [](double x) { return std::isfinite(x); };
  if (!std::all_of(log_prob, log_prob + targets.size(), is_finite)) {
    fail_not_finite("log-probabilities", ids, offsets, state);
  }
}

Pass LanguageModel::check_with_targets(std::span<const int32_t> ids, std::span<const int32_t> targets,
                                       std::span<const int64_t> offsets, const State* state) const {
  const Pass pass = check(ids, offsets, state);
  if (targets.size() != ids.size()) {
    throw Error("[model] targets: given " + std::to_string(targets.size()) + "; expected one for each of the " +
                std::to_string(ids.size()) + " tokens");
  }
  check_targets(targets);
  return pass;
}

// ---- backward

double LanguageModel::loss_and_gradients(std::span<const int32_t> ids, std::span<const int32_t> targets,
                                         std::span<const int64_t> offsets, LossScale scale, Keep keep,
                                         const Gradients& to, const std::function<void(const GradientRange&)>& done) {
  if (keep == Keep::kNothing) throw Error("[model] keep: a backward pass needs what the forward pass kept");
  const Pass pass = check_with_targets(ids, targets, offsets, nullptr);
  plan(pass.tokens(), keep);
  run_layers(pass, ids, nullptr);

  const Weights& w = *weights_;
  const int64_t tokens = pass.tokens(), D = config().hidden_size, ld = nn::wide_ld(D);
  if (!to.add) std::fill_n(to.vectors, layout().vectors_size(), 0.0f);  // below they are added to
  const float pull = config().use_l2warp ? kL2WarpPenalty * scale.token : 0.0f;
  const double sum = vocabulary_loss_(w.matrix(layout().head()), tokens, {scratch_.x, ld}, targets.data(), scale.target,
                                      pull, {dscratch_.x, ld}, to.matrix(layout().head()), to.add, pass.threads);
  std::fill_n(dh_, tokens * ld, 0.0f);
  nn::rms_norm_backward(tokens, D, {h_final_, ld}, final_rstd_, w.vector(layout().final_norm()), {dscratch_.x, ld},
                        {dh_, ld}, to.vector(layout().final_norm()), pass.threads);

  for (std::size_t i = layers_.size(); i-- > 0;) {
    const LayerActivations& a = activations_[i];
    if (keep == Keep::kRecompute) {
      layers_[i].forward(pass, w, nullptr, nullptr, a, scratch_, nullptr, true, pending_);
    }
    const LayerLayout& at = layout().layers()[i];
    layers_[i].backward(pass, w, a, gradients_.at(at.attention_config), scratch_, dscratch_, to, dh_);
    if (done) done({at.matrices_begin, at.matrices_end, at.vectors_begin, at.vectors_end});
  }
  const MatrixAt embeddings = layout().embeddings();
  const bool holds_head = embeddings.offset == layout().head().offset;  // then the loss has set it
  if (!to.add && !holds_head) std::fill_n(to.matrix(embeddings), embeddings.out * embeddings.in, 0.0f);
  nn::embedding_backward(tokens, D, ids.data(), {dh_, ld}, to.matrix(embeddings), pass.threads);
  if (done) {
    const LayerLayout &first = layout().layers().front(), &last = layout().layers().back();
    done({0, first.matrices_begin, 0, first.vectors_begin});
    done({last.matrices_end, layout().matrices_size(), last.vectors_end, layout().vectors_size()});
  }
  return sum;
}

}  // namespace deltanet
