#include "model/generation/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "deltanet/error.h"

namespace deltanet {
namespace {

void require(bool holds, const char* name, double given, const char* expected) {
  if (holds) return;
  throw Error(std::string("[sampler] ") + name + ": given " + std::to_string(given) + "; expected " + expected);
}

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options), rng_(options.seed) {
  const SamplerOptions& o = options_;
  require(std::isfinite(o.temperature) && o.temperature >= 0, "temperature", o.temperature, "0 or more");
  require(o.top_k >= 0, "top_k", static_cast<double>(o.top_k), "0 or more");
  require(o.top_p >= 0 && o.top_p <= 1, "top_p", o.top_p, "0 to 1");
  require(o.min_p >= 0 && o.min_p <= 1, "min_p", o.min_p, "0 to 1");
  require(std::isfinite(o.repetition_penalty) && o.repetition_penalty > 0, "repetition_penalty", o.repetition_penalty,
          "more than 0");
}

bool Sampler::less_likely(const Candidate& a, const Candidate& b) {
  return a.score != b.score ? a.score < b.score : a.id > b.id;
}

int32_t Sampler::next(std::span<const float> logits, std::span<const int32_t> history) {
  load(logits);
  penalize(history);
  if (options_.temperature == 0) return std::max_element(candidates_.begin(), candidates_.end(), less_likely)->id;
  apply_temperature();
  keep_top_k();
  compute_probabilities();
  keep_top_p();
  keep_min_p();
  return draw();
}

void Sampler::load(std::span<const float> logits) {
  if (logits.empty() || logits.size() > static_cast<std::size_t>(std::numeric_limits<int32_t>::max())) {
    throw Error("[sampler] logits: given " + std::to_string(logits.size()) + " values; expected 1 to 2^31 - 1");
  }
  candidates_.resize(logits.size());
  bool any = false;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == std::numeric_limits<float>::infinity()) {
      throw Error("[sampler] logits: given " + std::to_string(logits[i]) + " for token " + std::to_string(i) +
                  "; expected finite values or -inf");
    }
    any = any || std::isfinite(logits[i]);
    candidates_[i] = {logits[i], static_cast<int32_t>(i), 0.0};
  }
  if (!any) throw Error("[sampler] logits: given -inf for every token; expected at least one that is allowed");
}

void Sampler::penalize(std::span<const int32_t> history) {
  if (options_.repetition_penalty == 1.0) return;
  if (seen_.size() != candidates_.size() || ++call_ == 0) {
    seen_.assign(candidates_.size(), 0);
    call_ = 1;
  }
  const auto penalty = static_cast<float>(options_.repetition_penalty);
  for (const int32_t id : history) {
    if (id < 0 || static_cast<std::size_t>(id) >= seen_.size()) {
      throw Error("[sampler] history: given token " + std::to_string(id) + "; expected 0 to " +
                  std::to_string(seen_.size() - 1));
    }
    if (seen_[id] == call_) continue;  // however often a token occurred, it is penalised once
    seen_[id] = call_;
    float& score = candidates_[id].score;
    score = score < 0 ? score * penalty : score / penalty;
  }
}

void Sampler::apply_temperature() {
  // Large scores divided by a tiny temperature must not become infinite: only differences to the best one matter.
  const float best = std::max_element(candidates_.begin(), candidates_.end(), less_likely)->score;
  const auto temperature = static_cast<float>(options_.temperature);
  for (Candidate& candidate : candidates_) {
    candidate.score = candidate.score == best ? 0.0f : (candidate.score - best) / temperature;
  }
}

void Sampler::keep_top_k() {
  const auto k = static_cast<std::size_t>(options_.top_k);
  if (k == 0 || k >= candidates_.size()) return;
  scores_.resize(candidates_.size());
  std::transform(candidates_.begin(), candidates_.end(), scores_.begin(), [](const auto& c) { return c.score; });
  std::nth_element(scores_.begin(), scores_.begin() + static_cast<std::ptrdiff_t>(k - 1), scores_.end(),
                   std::greater<>());
  const float last = scores_[k - 1];
  std::erase_if(candidates_, [&](const Candidate& candidate) { return candidate.score < last; });
}

void Sampler::compute_probabilities() {
  for (Candidate& candidate : candidates_) candidate.probability = std::exp(static_cast<double>(candidate.score));
}

// A token stays while the more likely ones together have less than p. Taking them from a heap sorts only those that
// stay, which are few.
void Sampler::keep_top_p() {
  if (options_.top_p >= 1.0) return;
  double total = 0.0;
  for (const Candidate& candidate : candidates_) total += candidate.probability;
  std::make_heap(candidates_.begin(), candidates_.end(), less_likely);
  auto kept = candidates_.end();  // the heap shrinks from the end and leaves there what stays
  double before = 0.0;
  do {
    std::pop_heap(candidates_.begin(), kept, less_likely);
    --kept;
    before += kept->probability;
  } while (kept != candidates_.begin() && before < options_.top_p * total);
  candidates_.erase(candidates_.begin(), kept);
}

void Sampler::keep_min_p() {
  if (options_.min_p == 0.0) return;
  // The most likely token is always a candidate, and its relative probability is 1.
  std::erase_if(candidates_, [&](const Candidate& candidate) { return candidate.probability < options_.min_p; });
}

int32_t Sampler::draw() {
  double total = 0.0;
  for (const Candidate& candidate : candidates_) total += candidate.probability;
  double left = rng_.uniform() * total;
  const Candidate* chosen = nullptr;
  for (const Candidate& candidate : candidates_) {
    if (candidate.probability == 0.0) continue;
    chosen = &candidate;  // if rounding leaves a rest, the last possible one
    left -= candidate.probability;
    if (left < 0.0) break;
  }
  return chosen->id;
}

}  // namespace deltanet
