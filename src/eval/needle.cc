#include "eval/needle.h"

#include <algorithm>
#include <cstdio>

#include "data/synthetic/labelled.h"
#include "deltanet/error.h"
#include "eval/needle_words.h"

namespace deltanet::eval {
namespace {

std::string_view pick(std::span<const std::string_view> words, Rng& rng) {
  return words[uniform_below(static_cast<int64_t>(words.size()), rng)];
}

std::string draw_number(Rng& rng) {
  constexpr int64_t kLeast = 1'000'000, kMost = 9'999'999;
  return std::to_string(kLeast + uniform_below(kMost - kLeast + 1, rng));
}

// RFC 9562, version 4: all bits but six are random.
std::string draw_uuid(Rng& rng) {
  constexpr uint64_t kVersion = 0x4000, kVariant = uint64_t{2} << 62;
  const uint64_t high = (rng.next() & ~uint64_t{0xF000}) | kVersion, low = (rng.next() >> 2) | kVariant;
  char text[37];
  std::snprintf(text, sizeof text, "%08x-%04x-%04x-%04x-%012llx", static_cast<unsigned>(high >> 32),
                static_cast<unsigned>(high >> 16 & 0xFFFF), static_cast<unsigned>(high & 0xFFFF),
                static_cast<unsigned>(low >> 48), static_cast<unsigned long long>(low & 0xFFFFFFFFFFFF));
  return text;
}

std::string kind_text(const Needle& needle) { return needle.kind == NeedleValue::kNumber ? "number" : "uuid"; }

std::string sentence(const Needle& needle) {
  return "One of the special magic " + kind_text(needle) + "s for " + needle.key + " is: " + needle.value + ".";
}

std::string answer_prefix(const Needle& needle) {
  return " The special magic " + kind_text(needle) + " for " + needle.key + " mentioned in the provided text is";
}

}  // namespace

Needle draw_needle(NeedleValue kind, Rng& rng) {
  Needle needle;
  needle.kind = kind;
  needle.key = std::string(pick(adjectives(), rng)) + "-" + std::string(pick(nouns(), rng));
  needle.value = kind == NeedleValue::kNumber ? draw_number(rng) : draw_uuid(rng);
  needle.place = rng.uniform();
  return needle;
}

NeedleFitter::NeedleFitter(const Haystack& haystack, const TaskModel& model, int64_t length, NeedleFit fit,
                           const Needle& first)
    : haystack_(haystack), model_(model), length_(length), fit_(fit) {
  if (fit_ == NeedleFit::kHarness) {
    const int64_t step = haystack_.step(length_);
    do {
      start_ += step;
    } while (start_ <= haystack_.units() && fits(question(first, start_) + first.value));
    start_ -= step;
    if (start_ + step <= haystack_.units()) return;
  } else {
    // The largest number that fits lies in [low, high): twice as many as fitted, then halves.
    int64_t low = haystack_.least_units(), high = low + 1;
    while (high <= haystack_.units() && fits(first, high)) low = high, high *= 2;
    high = std::min(high, haystack_.units() + 1);
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (fits(first, middle) ? low : high) = middle;
    }
    start_ = low;
    if (start_ < haystack_.units()) return;
  }
  throw Error("[eval] --haystack: given a text of " + std::to_string(haystack_.units()) + " " +
              std::string(haystack_.unit()) + "; expected more than fit into a prompt of " + std::to_string(length_) +
              " tokens");
}

std::string NeedleFitter::question(const Needle& needle, int64_t units) const {
  const std::string kind = kind_text(needle);
  return "A special magic " + kind +
         " is hidden within the following text. Make sure to memorize it. I will quiz you about the " + kind +
         " afterwards.\n" + haystack_.hide(sentence(needle), units, needle.place).text +
         "\nWhat is the special magic " + kind + " for " + needle.key + " mentioned in the provided text?";
}

bool NeedleFitter::fits(const std::string& text) const {
  return static_cast<int64_t>(model_.encode(text).size()) + kNeedleAnswerTokens <= length_;
}

bool NeedleFitter::fits(const Needle& needle, int64_t units) const {
  const std::string text = question(needle, units);
  return fits(fit_ == NeedleFit::kExact ? text + answer_prefix(needle) : text);
}

NeedlePrompt NeedleFitter::prompt(const Needle& needle, int64_t units) const {
  NeedlePrompt prompt{.text = question(needle, units) + answer_prefix(needle),
                      .depth = haystack_.hide("", units, needle.place).depth,
                      .units = units};
  prompt.tokens = static_cast<int64_t>(model_.encode(prompt.text).size());
  return prompt;
}

std::optional<NeedlePrompt> NeedleFitter::fit(const Needle& needle) const {
  const int64_t least = haystack_.least_units(), step = fit_ == NeedleFit::kExact ? 1 : haystack_.step(length_);
  int64_t units = std::max(start_, least);
  bool good = fits(needle, units);
  if (good && fit_ == NeedleFit::kExact) {
    while (units < haystack_.units() && fits(needle, units + 1)) ++units;
  }
  while (!good && units > least) {
    units = std::max(least, units - step);
    good = fits(needle, units);
  }
  if (!good) return {};
  return prompt(needle, units);
}

}  // namespace deltanet::eval
