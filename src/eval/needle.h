#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/rng.h"
#include "eval/haystack.h"
#include "eval/task.h"

// A needle in a haystack (S-NIAH of RULER): one sentence that gives a key a value, and the question for that value.

namespace deltanet::eval {

enum class NeedleValue { kNumber, kUuid };

struct Needle {
  NeedleValue kind = NeedleValue::kNumber;
  std::string key, value;  // "brave-lantern"; "4029571" or a random UUID (version 4)
  double place = 0;        // of [0, 1), in the haystack
};

Needle draw_needle(NeedleValue kind, Rng& rng);

struct NeedlePrompt {
  std::string text;                          // ends with the beginning of the answer, to which the value belongs
  int64_t depth = 0, units = 0, tokens = 0;  // tokens: as the model reads them
};

// How much of the haystack goes into a prompt.
enum class NeedleFit {
  // As many units as fit: with one more, prompt and answer would be longer than asked for.
  kExact,
  // The rule of lm-evaluation-harness: whole steps of units, counted without the beginning of the answer; what the
  // first prompt of a length has room for, and less where that is too much.
  kHarness,
};

inline constexpr int64_t kNeedleAnswerTokens = 128;  // for which room is left

class NeedleFitter {
 public:
  // Throws Error if the whole haystack is not enough for a prompt of this length. The first needle decides where the
  // others begin to try.
  NeedleFitter(const Haystack& haystack, const TaskModel& model, int64_t length, NeedleFit fit, const Needle& first);

  // Nothing if even the fewest units do not fit.
  std::optional<NeedlePrompt> fit(const Needle& needle) const;

  // A prompt of so many units, whatever its length.
  NeedlePrompt prompt(const Needle& needle, int64_t units) const;

 private:
  std::string question(const Needle& needle, int64_t units) const;
  bool fits(const std::string& text) const;
  bool fits(const Needle& needle, int64_t units) const;

  const Haystack& haystack_;
  const TaskModel& model_;
  int64_t length_;
  NeedleFit fit_;
  int64_t start_ = 0;  // units
};

}  // namespace deltanet::eval
