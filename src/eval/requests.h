#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "deltanet/model.h"
#include "eval/example.h"
#include "eval/task.h"

// From examples to tokens, as lm-evaluation-harness does it.

namespace deltanet::eval {

struct ReadingRules {
  static constexpr int64_t kNoLimit = int64_t{1} << 48;
  int64_t max_length = kNoLimit;  // tokens of context and continuation
  int64_t window = 2048;          // of a document
  std::optional<int32_t> prefix;  // what stands before a text without context
};

// What a model is given for an example: sequences to score, or a prompt to go on from.
struct Encoded {
  std::vector<ScoreRequest> requests;  // of a choice one for each option, of a document one for each window
  std::vector<int32_t> prompt;         // of a question
  bool cut = false;                    // a context or a prompt lost its beginning
  uint64_t key = 0;                    // tells apart what is asked and what counts as right

  int64_t tokens() const;  // to be predicted
};

// Throws Error where an example cannot be asked, such as a continuation that is longer than max_length.
Encoded encode(const Example& example, const TaskModel& model, const ReadingRules& rules);

}  // namespace deltanet::eval
