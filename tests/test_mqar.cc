// MQAR: what its examples hold and how likely.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "data/synthetic/mqar.h"
#include "nn/cross_entropy.h"
#include "temporary_directory.h"

namespace deltanet::test {
namespace {

struct Example {
  std::vector<int32_t> ids, targets;
};

Example read_example(const MqarData& data, int64_t index) {
  MqarBatch batch;
  data.read(index, 1, batch);
  return {batch.ids, batch.targets};
}

std::vector<int32_t> every_second(const std::vector<int32_t>& ids, int64_t first, int64_t count) {
  std::vector<int32_t> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(ids[first + 2 * i]);
  return values;
}

bool all_different(std::vector<int32_t> values) {
  return std::set(values.begin(), values.end()).size() == values.size();
}

class MqarExamples : public testing::TestWithParam<MqarTask> {
 protected:
  MqarOptions options_;
  MqarData data_{options_, {{GetParam(), 50}}, 7, MqarSplit::kTrain};
};

TEST_P(MqarExamples, ContextHoldsPairsOfDifferentKeysAndValues) {
  const int64_t N = GetParam().pairs, V = options_.vocab_size;
  for (int64_t i = 0; i < 50; ++i) {
    const Example example = read_example(data_, i);
    const std::vector<int32_t> keys = every_second(example.ids, 0, N), values = every_second(example.ids, 1, N);
    EXPECT_TRUE(all_different(keys));
    EXPECT_TRUE(all_different(values));
    for (const int32_t key : keys) EXPECT_TRUE(key >= 1 && key < V / 2) << key;
    for (const int32_t value : values) EXPECT_TRUE(value >= V / 2 && value < V) << value;
  }
}

TEST_P(MqarExamples, EveryKeyIsAskedForOnceWithItsValueAsTheLabel) {
  const auto [L, N] = GetParam();
  for (int64_t i = 0; i < 50; ++i) {
    const Example example = read_example(data_, i);
    std::set<int32_t> asked;
    for (int64_t t = 0; t < L; ++t) {
      if (example.targets[t] == nn::kIgnoredLabel) continue;
      EXPECT_GE(t, 2 * N);
      EXPECT_EQ(t % 2, 0);
      const auto key = std::find(example.ids.begin(), example.ids.begin() + 2 * N, example.ids[t]);
      ASSERT_LT(key - example.ids.begin(), 2 * N) << "a query that is no key";
      EXPECT_EQ(example.targets[t], *(key + 1));
      asked.insert(example.ids[t]);
    }
    EXPECT_EQ(static_cast<int64_t>(asked.size()), N);
  }
}

TEST_P(MqarExamples, FillerIsRandomOrZero) {
  const auto [L, N] = GetParam();
  MqarOptions zeros = options_;
  zeros.filler = MqarFiller::kZeros;
  const MqarData zero_data(zeros, {{GetParam(), 50}}, 7, MqarSplit::kTrain);
  int64_t others = 0, nonzero = 0;
  for (int64_t i = 0; i < 50; ++i) {
    const Example random = read_example(data_, i), zero = read_example(zero_data, i);
    for (int64_t t = 2 * N; t < L; ++t) {
      if (zero.targets[t] == nn::kIgnoredLabel) {
        EXPECT_EQ(zero.ids[t], 0);
      }
      if (random.targets[t] != nn::kIgnoredLabel) continue;
      EXPECT_TRUE(random.ids[t] >= 0 && random.ids[t] < options_.vocab_size);
      ++others;
      nonzero += random.ids[t] != 0;
    }
  }
  EXPECT_GT(nonzero, others * 9 / 10);
}

INSTANTIATE_TEST_SUITE_P(Tasks, MqarExamples,
                         testing::Values(MqarTask{4, 1}, MqarTask{64, 4}, MqarTask{64, 16}, MqarTask{67, 5},
                                         MqarTask{1024, 256}),
                         [](const auto& test) {
                           return "L" + std::to_string(test.param.length) + "_N" + std::to_string(test.param.pairs);
                         });

// With one pair the gap is a single draw, whose counts must be those of p(n) ~ n^(a-1): chi-square over the 31 places.
TEST(Mqar, GapsFollowThePowerLaw) {
  for (const double power : {0.01, 0.5, 1.0}) {
    constexpr int64_t kExamples = 20000, kPlaces = 31;
    MqarOptions options;
    options.power = power;
    const MqarData data(options, {{{64, 1}, kExamples}}, 3, MqarSplit::kTrain);
    MqarBatch batch;
    data.read(0, kExamples, batch);
    std::vector<double> counts(kPlaces), expected(kPlaces);
    for (std::size_t t = 0; t < batch.targets.size(); ++t) {
      if (batch.targets[t] != nn::kIgnoredLabel) ++counts[(t % 64 - 2) / 2];
    }
    for (int64_t n = 0; n < kPlaces; ++n) expected[n] = std::pow(static_cast<double>(n + 1), power - 1);
    const double sum = std::accumulate(expected.begin(), expected.end(), 0.0);
    double chi_square = 0;
    for (int64_t n = 0; n < kPlaces; ++n) {
      const double e = expected[n] / sum * kExamples;
      chi_square += (counts[n] - e) * (counts[n] - e) / e;
    }
    EXPECT_LT(chi_square, 65) << "power " << power;  // 30 degrees of freedom: above 65 once in 4000 seeds
  }
}

// Two draws without replacement: P(first = i, second = j) = p_i p_j / (1 - p_i), by pairs of the three smallest places.
TEST(Mqar, LaterGapsAreDrawnFromWhatIsLeft) {
  constexpr int64_t kExamples = 40000, kPlaces = 3;  // length 2*2 + 2*3
  const MqarData data({}, {{{10, 2}, kExamples}}, 5, MqarSplit::kTrain);
  MqarBatch batch;
  data.read(0, kExamples, batch);
  std::vector<double> counts(kPlaces * kPlaces);
  for (int64_t i = 0; i < kExamples; ++i) {
    const int32_t* ids = batch.ids.data() + i * 10;
    const int32_t* targets = batch.targets.data() + i * 10;
    int64_t gap[2] = {};
    for (int64_t n = 0; n < kPlaces; ++n) {
      if (targets[4 + 2 * n] == ids[1]) gap[0] = n;
      if (targets[4 + 2 * n] == ids[3]) gap[1] = n;
    }
    ++counts[gap[0] * kPlaces + gap[1]];
  }
  const double weights[] = {1, std::pow(2.0, -0.99), std::pow(3.0, -0.99)};
  const double sum = weights[0] + weights[1] + weights[2];
  for (int64_t i = 0; i < kPlaces; ++i) {
    for (int64_t j = 0; j < kPlaces; ++j) {
      const double p = i == j ? 0 : weights[i] / sum * weights[j] / (sum - weights[i]);
      EXPECT_NEAR(counts[i * kPlaces + j] / kExamples, p, 0.01) << i << " then " << j;
    }
  }
}

TEST(Mqar, ExampleIsAFunctionOfSeedSplitAndIndex) {
  const std::vector<MqarPart> parts = {{{64, 4}, 10}, {{128, 8}, 10}};
  const MqarData data({}, parts, 1, MqarSplit::kTrain);
  EXPECT_EQ(data.examples(), 20);
  MqarBatch all;
  data.read(10, 10, all);
  EXPECT_EQ(all.labels, 80);
  EXPECT_EQ(all.offsets.back(), 1280);
  const Example third = read_example(data, 13);
  EXPECT_TRUE(std::equal(third.ids.begin(), third.ids.end(), all.ids.begin() + 3 * 128));
  EXPECT_TRUE(std::equal(third.targets.begin(), third.targets.end(), all.targets.begin() + 3 * 128));
  EXPECT_NE(read_example(data, 0).ids, read_example(data, 1).ids);
  EXPECT_NE(read_example(data, 0).ids, read_example({{}, parts, 2, MqarSplit::kTrain}, 0).ids);
  EXPECT_NE(read_example(data, 0).ids, read_example({{}, parts, 1, MqarSplit::kTest}, 0).ids);
}

// ---- the tasks of the paper

TEST(MqarTasks, TheMixIsThePapers) {
  const std::vector<MqarPart> expected = {
      {{64, 4}, 100000}, {{128, 8}, 20000}, {{256, 16}, 20000}, {{256, 32}, 20000}, {{256, 64}, 20000}};
  EXPECT_EQ(mqar_train_mix(), expected);
}

TEST(MqarTasks, TheTestsAreThePapers) {
  const std::vector<MqarPart> expected = {{{64, 4}, 1000},   {{64, 8}, 1000},    {{64, 16}, 1000},   {{128, 32}, 1000},
                                          {{256, 64}, 1000}, {{512, 128}, 1000}, {{1024, 256}, 1000}};
  EXPECT_EQ(mqar_tests(), expected);
}

TEST(MqarTasks, TheCutsAreThePapers) {
  const std::vector<MqarCut> cuts = mqar_cuts();
  ASSERT_EQ(cuts.size(), 3u);
  EXPECT_EQ(cuts[0].tasks, (std::vector<MqarTask>{{64, 16}, {128, 16}, {256, 16}, {512, 16}, {1024, 16}}));
  EXPECT_EQ(cuts[1].tasks, (std::vector<MqarTask>{{64, 16}, {128, 32}, {256, 64}, {512, 128}, {1024, 256}}));
  EXPECT_EQ(cuts[2].tasks, (std::vector<MqarTask>{
                               {1024, 4}, {1024, 8}, {1024, 16}, {1024, 32}, {1024, 64}, {1024, 128}, {1024, 256}}));
}

TEST(Mqar, ImpossibleTasksAreRefused) {
  EXPECT_NE(error_of([] {
              validate(MqarOptions{}, MqarTask{63, 16});
            }).find("4 tokens for each pair"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              validate(MqarOptions{.vocab_size = 16}, MqarTask{64, 8});
            }).find("vocabulary 16"),
            std::string::npos);
  // Eight keys without token 0 and as many values: the text names the smallest vocabulary that is taken.
  for (const int64_t vocab : {17, 18, 19}) {
    const std::string error = error_of([&] { validate(MqarOptions{.vocab_size = vocab}, MqarTask{64, 8}); });
    EXPECT_EQ(error.find("a vocabulary of at least 18:") != std::string::npos, vocab < 18) << error;
    EXPECT_EQ(error.empty(), vocab >= 18) << error;
  }
  for (const int64_t vocab : {3, 4}) {
    EXPECT_EQ(error_of([&] { validate(MqarOptions{.vocab_size = vocab}, MqarTask{64, 1}); }).empty(), vocab == 4);
  }
  EXPECT_EQ(error_of([] { validate(MqarOptions{}, MqarTask{64, 16}); }), "");
  EXPECT_EQ(error_of([] { validate(MqarOptions{}, MqarTask{1 << 20, 16}); }), "");
  EXPECT_NE(error_of([] { validate(MqarOptions{}, MqarTask{(1 << 20) + 1, 16}); }), "");
  EXPECT_NE(error_of([] { validate(MqarOptions{}, MqarTask{64, 0}); }), "");
  for (const double power : {0.0, -1.0, std::nan("")}) {
    EXPECT_NE(error_of([&] { validate(MqarOptions{.power = power}, MqarTask{64, 4}); }), "");
  }
  const MqarData data({}, {{{64, 4}, 10}, {{128, 8}, 10}}, 1, MqarSplit::kTrain);
  MqarBatch batch;
  EXPECT_NE(error_of([&] { data.read(5, 6, batch); }), "");   // over the end of a part
  EXPECT_NE(error_of([&] { data.read(20, 1, batch); }), "");  // over the end
}

}  // namespace
}  // namespace deltanet::test
