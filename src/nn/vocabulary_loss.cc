#include "nn/vocabulary_loss.h"

#include <algorithm>

#include "base/parallel.h"
#include "nn/cross_entropy.h"
#include "nn/linear.h"

namespace deltanet::nn {

void VocabularyLoss::select(int64_t tokens, const int32_t* targets, bool all) {
  selected_.clear();
  for (int64_t token = 0; token < tokens; ++token) {
    if (all || targets[token] != kIgnoredLabel) selected_.push_back(token);
  }
}

// Every block reads the head twice and its gradient once. With 512 tokens the products hardly notice; with fewer they
// do (128 tokens of 32000 logits: a third slower), which only the memory of a very large vocabulary is worth.
int64_t VocabularyLoss::block_tokens(int64_t vocab) {
  constexpr int64_t kLogits = int64_t{16} << 20;
  return std::clamp<int64_t>(kLogits / vocab / 16 * 16, 64, 512);
}

void VocabularyLoss::plan(const Weight& head) {
  if (head.out == planned_vocab_ && head.in == planned_D_ && head.type == planned_type_) return;
  block_ = block_tokens(head.out);
  arena_.release();
  logits_ = {arena_.take(block_ * wide_ld(head.out)), wide_ld(head.out)};
  x_ = arena_.take(block_ * wide_ld(head.in));
  dx_ = {arena_.take(block_ * wide_ld(head.in)), wide_ld(head.in)};
  labels_.resize(block_);
  losses_.resize(block_);
  planned_type_ = head.type;
  planned_vocab_ = head.out;
  planned_D_ = head.in;
}

// Copies the selected tokens from `first` on to the front of the block.
VocabularyLoss::Block VocabularyLoss::gather(const Weight& head, int64_t first, ConstView x, int threads) {
  const int64_t count = std::min<int64_t>(block_, static_cast<int64_t>(selected_.size()) - first);
  const Block block{count, factor_for(head.type, count, x_, head.in)};
  for_row_blocks(count, head.in, threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) copy_row(head.in, x.row(selected_[first + i]), block.x.from(i));
  });
  return block;
}

double VocabularyLoss::operator()(const Weight& head, int64_t tokens, ConstView x, const int32_t* targets, float scale,
                                  float pull, View dx, float* dhead, bool add, int threads) {
  const int64_t D = head.in, vocab = head.out;
  plan(head);
  select(tokens, targets, dx.data && pull != 0.0f);
  if (dx.data) {
    for_row_blocks(tokens, D, threads, [&](int64_t begin, int64_t end) {
      for (int64_t token = begin; token < end; ++token) std::fill_n(dx.data + token * dx.ld, D, 0.0f);
    });
  }
  if (dx.data && selected_.empty() && !add) std::fill_n(dhead, vocab * D, 0.0f);
  double sum = 0;
  for (int64_t first = 0; first < static_cast<int64_t>(selected_.size()); first += block_) {
    const auto [count, factor] = gather(head, first, x, threads);
    for (int64_t i = 0; i < count; ++i) labels_[i] = targets[selected_[first + i]];
    linear(factor, count, head, nullptr, logits_.data, logits_.ld, false, threads);
    const bool round = dx.data && rounds_activations(head.type);
    sum += cross_entropy(count, vocab, logits_, labels_.data(), scale, losses_.data(), threads, round, pull);
    if (!dx.data) continue;
    const Factor dlogits = round ? rounded_in_place(logits_) : Factor(logits_);
    linear_backward(dlogits, factor, count, head, dx_.data, dx_.ld, dhead, add || first > 0, nullptr, threads);
    for_row_blocks(count, D, threads, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) std::copy_n(dx_.row(i), D, dx.data + selected_[first + i] * dx.ld);
    });
  }
  return sum;
}

void VocabularyLoss::log_probs(const Weight& head, ConstView x, std::span<const Target> targets, double* log_prob,
                               bool* greedy, int threads) {
  plan(head);
  selected_.clear();
  for (const Target& target : targets) selected_.push_back(target.token);
  for (int64_t first = 0; first < static_cast<int64_t>(targets.size()); first += block_) {
    const auto [count, factor] = gather(head, first, x, threads);
    for (int64_t i = 0; i < count; ++i) labels_[i] = targets[first + i].id;
    linear(factor, count, head, nullptr, logits_.data, logits_.ld, false, threads);
    label_log_probs(count, head.out, logits_, labels_.data(), log_prob + first, greedy + first, threads);
  }
}

}  // namespace deltanet::nn
