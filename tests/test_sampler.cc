// Sampling: each step does what transformers does, draws follow the distribution, and stop strings are found however
// the text is cut.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <string>
#include <vector>

#include "base/rng.h"
#include "deltanet/error.h"
#include "model/generation/sampler.h"
#include "model/generation/stop_matcher.h"

namespace deltanet::test {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// The known answers of the Random123 library.
TEST(Rng, PhiloxKnownAnswers) {
  using Block = Rng::Block;
  EXPECT_EQ(Rng::philox({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Rng::philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Rng::philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Rng, NumbersComeFromTheBlocksInOrder) {
  Rng rng(0);
  EXPECT_EQ(rng.next(), 0xe169c58d6627e8d5u);
  EXPECT_EQ(rng.next(), 0x9b00dbd8bc57ac4cu);
  const auto second = Rng::philox({1, 0, 0, 0}, {0, 0});
  EXPECT_EQ(rng.next(), static_cast<uint64_t>(second[1]) << 32 | second[0]);
  EXPECT_NE(Rng(0, 1).next(), Rng(0, 0).next());
  EXPECT_NE(Rng(1, 0).next(), Rng(0, 0).next());
}

// Of Box and Muller: two uniform numbers make two normal ones, which are independent.
TEST(Rng, NormalNumbersComeInPairs) {
  Rng rng(5), same(5);
  double product = 0;
  constexpr int kPairs = 20'000;
  for (int i = 0; i < kPairs; ++i) {
    const double radius = std::sqrt(-2 * std::log(1 - same.uniform()));
    const double angle = 2 * std::numbers::pi * same.uniform();
    const double first = rng.normal(), second = rng.normal();
    EXPECT_EQ(first, radius * std::cos(angle));
    EXPECT_EQ(second, radius * std::sin(angle));
    product += first * second;
  }
  EXPECT_NEAR(product / kPairs, 0, 5 / std::sqrt(kPairs));
}

TEST(Rng, MomentsOfUniformAndNormal) {
  Rng rng(3);
  constexpr int kCount = 100'000;
  double uniform = 0, normal = 0, square = 0;
  for (int i = 0; i < kCount; ++i) {
    const double u = rng.uniform(), z = rng.normal();
    ASSERT_TRUE(u >= 0 && u < 1);
    uniform += u;
    normal += z;
    square += z * z;
  }
  const double error = 5 / std::sqrt(kCount);  // five standard deviations of a mean of variance one
  EXPECT_NEAR(uniform / kCount, 0.5, error * std::sqrt(1.0 / 12));
  EXPECT_NEAR(normal / kCount, 0.0, error);
  EXPECT_NEAR(square / kCount, 1.0, error * std::sqrt(2.0));
}

constexpr int kDraws = 40'000;

// Relative frequencies of the tokens in many draws.
std::map<int32_t, double> frequencies(const SamplerOptions& options, const std::vector<float>& logits,
                                      const std::vector<int32_t>& history = {}) {
  Sampler sampler(options);
  std::map<int32_t, double> counts;
  for (int i = 0; i < kDraws; ++i) ++counts[sampler.next(logits, history)];
  for (auto& [id, count] : counts) count /= kDraws;
  return counts;
}

void expect_frequencies(const std::map<int32_t, double>& actual, const std::map<int32_t, double>& expected) {
  double total = 0;
  for (const auto& [id, weight] : expected) total += weight;
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [id, weight] : expected) {
    const double p = weight / total;
    ASSERT_TRUE(actual.contains(id)) << id;
    EXPECT_NEAR(actual.at(id), p, 5 * std::sqrt(p * (1 - p) / kDraws)) << "token " << id;
  }
}

const std::vector<float> kLogits = {std::log(0.1f), std::log(0.4f), std::log(0.05f), std::log(0.3f), std::log(0.15f)};

TEST(Sampler, DrawsFollowTheSoftmax) {
  expect_frequencies(frequencies({.temperature = 1.0}, kLogits), {{0, 0.1}, {1, 0.4}, {2, 0.05}, {3, 0.3}, {4, 0.15}});
}

TEST(Sampler, TemperatureSharpens) {
  expect_frequencies(frequencies({.temperature = 0.5}, kLogits),
                     {{0, 0.01}, {1, 0.16}, {2, 0.0025}, {3, 0.09}, {4, 0.0225}});
}

TEST(Sampler, TinyTemperatureDoesNotOverflow) {
  expect_frequencies(frequencies({.temperature = 1e-30}, {3e38f, 2.9e38f, -3e38f, 3e38f}), {{0, 1}, {3, 1}});
}

TEST(Sampler, TopKKeepsTheMostLikelyAndTies) {
  expect_frequencies(frequencies({.temperature = 1.0, .top_k = 2}, kLogits), {{1, 0.4}, {3, 0.3}});
  expect_frequencies(frequencies({.temperature = 1.0, .top_k = 2}, {1, 2, 2, 2, 0}), {{1, 1}, {2, 1}, {3, 1}});
  EXPECT_EQ(frequencies({.temperature = 1.0, .top_k = 99}, kLogits).size(), 5u);
}

TEST(Sampler, TopPKeepsTheFewestThatSuffice) {
  expect_frequencies(frequencies({.temperature = 1.0, .top_p = 0.69}, kLogits), {{1, 0.4}, {3, 0.3}});
  expect_frequencies(frequencies({.temperature = 1.0, .top_p = 0.71}, kLogits), {{1, 0.4}, {3, 0.3}, {4, 0.15}});
  expect_frequencies(frequencies({.temperature = 1.0, .top_p = 0.0}, kLogits), {{1, 1}});
  // Of equal ones the lower ids stay.
  expect_frequencies(frequencies({.temperature = 1.0, .top_p = 0.4}, {1, 1, 1, 1}), {{0, 1}, {1, 1}});
}

// Of four that are equally likely: sums that are exactly p need no more.
TEST(Sampler, TopPEndsWhereTheSumIsReached) {
  for (const auto& [top_p, kept] : {std::pair{0.25, 1u}, {0.2500001, 2u}, {0.5, 2u}, {0.75, 3u}, {0.7500001, 4u}}) {
    EXPECT_EQ(frequencies({.temperature = 1.0, .top_p = top_p}, {1, 1, 1, 1}).size(), kept) << top_p;
  }
}

TEST(Sampler, MinPOfOneKeepsTheMostLikely) {
  expect_frequencies(frequencies({.temperature = 1.0, .min_p = 1.0}, {2, 3, 3, 1}), {{1, 1}, {2, 1}});
  EXPECT_EQ(frequencies({.temperature = 0.3, .min_p = 1.0}, kLogits).size(), 1u);
}

TEST(Sampler, MinPIsRelativeToTheMostLikely) {
  expect_frequencies(frequencies({.temperature = 1.0, .min_p = 0.3}, kLogits), {{1, 0.4}, {3, 0.3}, {4, 0.15}});
}

TEST(Sampler, StepsComeInTheOrderOfTransformers) {
  // Top-p sees the probabilities after top-k: 0.4 of 0.7 is more than half, so one token is enough.
  expect_frequencies(frequencies({.temperature = 1.0, .top_k = 2, .top_p = 0.55}, kLogits), {{1, 1}});
  // Temperature goes before min-p: at temperature 2 the ratios are square roots.
  expect_frequencies(frequencies({.temperature = 2.0, .min_p = 0.45}, kLogits),
                     {{0, std::sqrt(0.1)}, {1, std::sqrt(0.4)}, {3, std::sqrt(0.3)}, {4, std::sqrt(0.15)}});
}

TEST(Sampler, RepetitionPenaltyCountsATokenOnce) {
  // Positive logits are divided, negative ones multiplied.
  expect_frequencies(frequencies({.temperature = 1.0, .repetition_penalty = 2.0}, {2.0f, -1.0f, 0.5f}, {0, 1, 0, 0}),
                     {{0, std::exp(1.0)}, {1, std::exp(-2.0)}, {2, std::exp(0.5)}});
  Sampler greedy({.temperature = 0.0, .repetition_penalty = 1.5});
  EXPECT_EQ(greedy.next(std::vector<float>{3, 2.5, 1}, std::vector<int32_t>{0}), 1);
  EXPECT_EQ(greedy.next(std::vector<float>{3, 2.5, 1}, std::vector<int32_t>{}), 0);
}

TEST(Sampler, GreedyTakesTheLowerIdOfEqualOnes) {
  Sampler sampler({.temperature = 0.0});
  EXPECT_EQ(sampler.next(std::vector<float>{1, 3, 2, 3}, {}), 1);
  EXPECT_EQ(sampler.next(std::vector<float>{kMinusInfinity, kMinusInfinity, -5}, {}), 2);
}

TEST(Sampler, ForbiddenTokensAreNeverDrawn) {
  expect_frequencies(frequencies({.temperature = 1.0}, {kMinusInfinity, 1, kMinusInfinity, 1, kMinusInfinity}),
                     {{1, 1}, {3, 1}});
}

TEST(Sampler, TheSeedDecides) {
  const auto draws = [](uint64_t seed) {
    Sampler sampler({.temperature = 1.0, .seed = seed});
    std::vector<int32_t> ids;
    for (int i = 0; i < 50; ++i) ids.push_back(sampler.next(kLogits, {}));
    return ids;
  };
  EXPECT_EQ(draws(5), draws(5));
  EXPECT_NE(draws(5), draws(6));
}

TEST(Sampler, WrongInputIsRefused) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const SamplerOptions& options : std::vector<SamplerOptions>{{.temperature = -1},
                                                                   {.temperature = kNan},
                                                                   {.top_k = -1},
                                                                   {.top_p = 1.5},
                                                                   {.top_p = kNan},
                                                                   {.min_p = -0.1},
                                                                   {.min_p = 2},
                                                                   {.repetition_penalty = 0},
                                                                   {.repetition_penalty = kNan}}) {
    EXPECT_THROW(Sampler{options}, Error);
  }
  Sampler sampler({.temperature = 1.0, .repetition_penalty = 1.1});
  EXPECT_THROW(sampler.next({}, {}), Error);
  EXPECT_THROW(sampler.next(std::vector<float>{1, std::nanf("")}, {}), Error);
  EXPECT_THROW(sampler.next(std::vector<float>{1, -kMinusInfinity}, {}), Error);
  EXPECT_THROW(sampler.next(std::vector<float>{kMinusInfinity, kMinusInfinity}, {}), Error);
  EXPECT_THROW(sampler.next(std::vector<float>{1, 2}, std::vector<int32_t>{2}), Error);
  EXPECT_THROW(sampler.next(std::vector<float>{1, 2}, std::vector<int32_t>{-1}), Error);
}

struct StopCase {
  std::vector<std::string> stops;
  std::string text, shown, matched;
};

TEST(StopMatcher, FindsTheStopHoweverTheTextIsCut) {
  const std::vector<StopCase> cases = {
      {{"\n\n"}, "one\ntwo\n\nthree", "one\ntwo", "\n\n"},
      {{"<|end|>", "END"}, "a < b <|e <|end|> c", "a < b <|e ", "<|end|>"},
      {{"abab", "bax"}, "ababax", "", "abab"},
      {{"aab"}, "aaaab", "aa", "aab"},
      {{"bc", "abcd"}, "xabcd", "xa", "bc"},           // complete first
      {{"c", "abc"}, "xabc", "x", "abc"},              // complete at the same time: the longest
      {{"stop"}, "st sto stoop", "st sto stoop", ""},  // held back, and then given
      {{"stop"}, "never sto", "never sto", ""},
      {{}, "anything", "anything", ""},
  };
  for (const StopCase& c : cases) {
    for (std::size_t step = 1; step <= c.text.size(); ++step) {
      StopMatcher matcher(c.stops);
      std::string shown;
      for (std::size_t at = 0; at < c.text.size(); at += step) shown += matcher.push(c.text.substr(at, step));
      shown += matcher.finish();
      EXPECT_EQ(shown, c.shown) << "in steps of " << step;
      EXPECT_EQ(matcher.matched(), c.matched) << "in steps of " << step;
      EXPECT_EQ(matcher.stopped(), !c.matched.empty());
    }
  }
}

TEST(StopMatcher, HoldsBackNoMoreThanItMust) {
  StopMatcher matcher({"<|end|>"});
  EXPECT_EQ(matcher.push("text <|"), "text ");
  EXPECT_EQ(matcher.push("x"), "<|x");
  EXPECT_EQ(matcher.push("<|end"), "");
  EXPECT_EQ(matcher.push("|> more"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.push("and more"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, EmptyStopsAreRefused) { EXPECT_THROW(StopMatcher({"a", ""}), Error); }

}  // namespace
}  // namespace deltanet::test
