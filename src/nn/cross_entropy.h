#pragma once

#include <cstdint>

#include "nn/factor.h"

namespace deltanet::nn {

inline constexpr int32_t kIgnoredLabel = -100;

// logits [tokens, vocab], labels [tokens] in [0, vocab) or kIgnoredLabel, loss [tokens]:
//   loss_r = log sum exp(logits_r) - logits_r[label],   logits <- (softmax(logits) - onehot(label)) * scale
// Ignored tokens have loss 0 and gradient 0. Returns the sum of the losses. With `round` each row of the gradient
// becomes bfloat16 while it is in the cache, in the first half of its memory: the matrix is the factor
// rounded_in_place(logits). With `pull` the first of the largest logits of every token, ignored or not, adds pull times
// itself to its own gradient, which is no part of the loss.
double cross_entropy(int64_t tokens, int64_t vocab, View logits, const int32_t* labels, float scale, double* loss,
                     int threads, bool round = false, float pull = 0.0f);
Factor rounded_in_place(View logits);

// log_prob_r = log softmax(logits_r)[label], greedy_r: the label is the first of the largest logits. Ignored tokens
// have log_prob 0 and are not greedy.
void label_log_probs(int64_t tokens, int64_t vocab, ConstView logits, const int32_t* labels, double* log_prob,
                     bool* greedy, int threads);

}  // namespace deltanet::nn
