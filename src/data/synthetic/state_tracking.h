#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/rng.h"
#include "data/synthetic/labelled.h"

// Tasks that only a state which is tracked token by token solves (Grazzi et al. 2024, "Unlocking state-tracking in
// linear RNNs through negative eigenvalues"; Merrill et al. 2024, "The illusion of state in state-space models").

namespace deltanet {

struct StateTask {
  std::string_view name;
  std::string_view summary;
  std::string_view ids;  // what they mean
  int64_t vocab_size;
  int64_t least_length;  // in tokens
  int64_t chances;       // a guess is right once in so many
  LabelledExample (*draw)(int64_t length, Rng& rng);
};

// parity                       one answer, at the last token: is the number of 2s odd?
// modular_arithmetic           one answer, at the = that ends the expression: its value modulo 5
// modular_arithmetic_brackets  the same with brackets around every operation
// s3, s5                       an answer at every token: the product so far of permutations of 3 or 5 things
std::span<const StateTask> state_tasks();

// Throws Error for a length that the task does not have.
void validate(const StateTask& task, int64_t length);

// The i-th example of a length.
LabelledExample draw_state_example(const StateTask& task, int64_t length, uint64_t seed, int64_t index);

}  // namespace deltanet
