#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// What a needle is hidden in (Hsieh et al. 2024, "RULER"): the first units of a text that is the same for all examples.

namespace deltanet::eval {

class Haystack {
 public:
  virtual ~Haystack() = default;

  virtual std::string_view unit() const = 0;       // "words"
  virtual int64_t units() const = 0;               // that there are
  virtual int64_t least_units() const = 0;         // with which a needle has a place
  virtual int64_t step(int64_t length) const = 0;  // of the units in the harness, for a prompt of so many tokens

  struct Context {
    std::string text;
    int64_t depth = 0;  // of the needle: percent of the haystack before it
  };
  // `place` is a number of [0, 1), drawn uniformly.
  virtual Context hide(std::string_view needle, int64_t units, double place) const = 0;
};

// One line over and over; the needle stands before any of them.
class NoiseHaystack final : public Haystack {
 public:
  static constexpr std::string_view kLine =
      "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";

  std::string_view unit() const override { return "lines"; }
  int64_t units() const override;
  int64_t least_units() const override { return 1; }
  int64_t step(int64_t length) const override { return length < 4096 ? 5 : 25; }
  Context hide(std::string_view needle, int64_t units, double place) const override;
};

// The words of a text with single blanks between them; the needle stands between two sentences, at one of 40 depths
// from 0 to 100 percent of them.
//
// A sentence ends with a word that ends in . ! ? or an ellipsis, quotes and brackets behind it left aside, unless
//   - the next word begins with a small letter: "What?" she said,
//   - it is a single letter other than I, or a short form before a name or a number: J. Smith, Mr. Smith, No. 7.
// The rest of the last one is a sentence, too.
class TextHaystack final : public Haystack {
 public:
  static constexpr int kDepths = 40;
  static constexpr int kSentenceVersion = 1;  // a change of the rules changes prompts: count it up

  explicit TextHaystack(std::string_view text);  // valid UTF-8

  std::string_view unit() const override { return "words"; }
  int64_t units() const override { return static_cast<int64_t>(word_ends_.size()); }
  int64_t least_units() const override { return 0; }
  int64_t step(int64_t /*length*/) const override { return 500; }
  Context hide(std::string_view needle, int64_t units, double place) const override;

  // Where the sentences of the whole text begin: numbers of words.
  const std::vector<int64_t>& sentence_starts() const { return sentence_starts_; }

 private:
  std::string_view words(int64_t begin, int64_t end) const;

  std::string text_;
  std::vector<std::size_t> word_ends_;  // in text_; the blank comes then
  std::vector<int64_t> sentence_starts_;
};

}  // namespace deltanet::eval
