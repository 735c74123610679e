// MQAR: what its examples hold and how likely, that tiny models learn it, that results survive a crash.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/parallel.h"
#include "nn/cross_entropy.h"
#include "temporary_directory.h"
#include "train/mqar_results.h"

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

TEST(Mqar, ImpossibleTasksAreRefused) {
  EXPECT_NE(error_of([] {
              validate(MqarOptions{}, MqarTask{63, 16});
            }).find("4 tokens for each pair"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              validate(MqarOptions{.vocab_size = 16}, MqarTask{64, 8});
            }).find("vocabulary 16"),
            std::string::npos);
  EXPECT_EQ(error_of([] { validate(MqarOptions{.vocab_size = 18}, MqarTask{64, 8}); }), "");
  const MqarData data({}, {{{64, 4}, 10}, {{128, 8}, 10}}, 1, MqarSplit::kTrain);
  MqarBatch batch;
  EXPECT_NE(error_of([&] { data.read(5, 6, batch); }), "");   // over the end of a part
  EXPECT_NE(error_of([&] { data.read(20, 1, batch); }), "");  // over the end
}

// ---- runs

MqarRun tiny_run(const std::string& row) {
  MqarRun run;
  run.row = row;
  run.d_model = 32;
  run.lr = 1e-2;
  run.batch = 32;
  run.epochs = 2;
  run.validations = 4;
  run.options = {.vocab_size = 16, .filler = MqarFiller::kZeros};
  run.train = {{{8, 1}, 320}, {{16, 2}, 330}};
  run.tests = {{{8, 1}, 50}, {{16, 2}, 50}};
  run.more_tests = {{{32, 2}, 20}};
  return run;
}

TEST(MqarRun, LearnsATinyTask) {
  MqarRun run = tiny_run("pgdn");
  run.epochs = 30;
  run.validations = 15;
  const MqarResult result = run_mqar(run);
  EXPECT_GE(result.accuracy, 0.99);
  EXPECT_EQ(result.end, MqarEnd::kAccuracy);
  EXPECT_LT(result.steps, mqar_steps(run));
  EXPECT_LT(result.curve.back().loss, 0.3);
}

TEST(MqarRun, ReportsEveryStepAndScoresEveryTest) {
  for (const char* row : {"delta_net", "pdn", "gdn", "pgdn"}) {
    const MqarRun run = tiny_run(row);
    int64_t steps = 0;
    const MqarResult result = run_mqar(run, [&](const MqarProgress& p) {
      EXPECT_EQ(p.step, ++steps);
      EXPECT_EQ(p.steps, mqar_steps(run));
      EXPECT_GT(p.tokens_per_second, 0);
    });
    EXPECT_EQ(mqar_steps(run), 2 * (10 + 11));
    EXPECT_EQ(steps, mqar_steps(run));
    EXPECT_EQ(result.tokens, 2 * (320 * 8 + 330 * 16));
    ASSERT_EQ(result.curve.size(), 4u);
    EXPECT_EQ(result.curve.back().step, steps);
    ASSERT_EQ(result.scores.size(), 3u);
    EXPECT_EQ(result.scores[2].task, (MqarTask{32, 2}));
    EXPECT_DOUBLE_EQ(result.accuracy, (result.scores[0].accuracy + result.scores[1].accuracy) / 2);
  }
}

TEST(MqarRun, QuickOneIsValid) {
  for (const int64_t steps : {1, 20, 2500}) {
    const MqarRun run = quick_mqar_run(steps);
    EXPECT_NO_THROW(mqar_config(run));
    EXPECT_GE(mqar_steps(run), steps);
    EXPECT_LE(mqar_steps(run), steps + 2);
  }
  MqarRun run = tiny_run("gdn");
  run.more_tests = {{{64, 8}, 10}};
  EXPECT_NE(error_of([&] { mqar_config(run); }).find("vocabulary 16"), std::string::npos);
}

// Runs side by side are runs alone: nothing is shared, and libraries inside a run keep to its thread.
TEST(MqarRun, IsTheSameBesideOthers) {
  const MqarRun run = tiny_run("pgdn");
  const MqarResult alone = run_mqar(run);
  std::vector<MqarResult> beside(3);
  parallel_for(3, 3, [&](int64_t i) { beside[i] = run_mqar(run); });
  for (const MqarResult& result : beside) {
    for (std::size_t i = 0; i < alone.curve.size(); ++i) EXPECT_EQ(result.curve[i].loss, alone.curve[i].loss);
    EXPECT_EQ(result.accuracy, alone.accuracy);
  }
}

TEST(MqarRun, EndsWhenItDiverges) {
  MqarRun run = tiny_run("gdn");
  run.lr = 1e30;
  const MqarResult result = run_mqar(run);
  EXPECT_EQ(result.end, MqarEnd::kDiverged);
  EXPECT_LT(result.steps, mqar_steps(run));
}

TEST(MqarRun, WrongSettingsAreRefused) {
  MqarRun run = tiny_run("gdn");
  run.d_model = 33;
  EXPECT_NE(error_of([&] { run_mqar(run); }).find("multiple of the heads"), std::string::npos);
  run = tiny_run("gdn");
  run.lr = 0;
  EXPECT_NE(error_of([&] { run_mqar(run); }).find("lr"), std::string::npos);
  run = tiny_run("gdn");
  run.train = {};
  EXPECT_NE(error_of([&] { run_mqar(run); }).find("tasks"), std::string::npos);
  EXPECT_NE(error_of([&] { run_mqar(tiny_run("gdm")); }), "");
}

// ---- results

MqarRecord record_of(const std::string& row, double lr, uint64_t seed, double accuracy) {
  MqarRecord record{tiny_run(row), {}};
  record.run.lr = lr;
  record.run.seed = seed;
  record.result.accuracy = accuracy;
  record.result.scores = {{{8, 1}, accuracy}, {{16, 2}, accuracy / 2}};
  record.result.curve = {{.step = 3, .loss = 0.5, .accuracy = accuracy, .validated = true, .seconds = 2}};
  record.result.end = MqarEnd::kAccuracy;
  return record;
}

TEST(MqarResults, AreReadBackAndFoundBySettings) {
  const TemporaryDirectory directory;
  const MqarRecord record = record_of("gdn", 1e-2, 4, 0.75);
  {
    MqarResults results(directory / "results.jsonl");
    results.add(record);
    results.add(record_of("pgdn", 1e-2, 4, std::nextafter(0.5, 1.0)));
  }
  const MqarResults again(directory / "results.jsonl");
  ASSERT_EQ(again.records().size(), 2u);
  const MqarRecord* found = again.find(record.run);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->result.accuracy, 0.75);
  EXPECT_EQ(found->result.end, MqarEnd::kAccuracy);
  EXPECT_EQ(found->result.scores[1].task, (MqarTask{16, 2}));
  EXPECT_EQ(found->result.curve.front().loss, 0.5);
  EXPECT_EQ(again.records()[1].result.accuracy, std::nextafter(0.5, 1.0));
  MqarRun other = record.run;
  other.train.front().examples += 1;
  EXPECT_EQ(again.find(other), nullptr);
}

TEST(MqarResults, ALineCutShortIsForgotten) {
  const TemporaryDirectory directory;
  const auto path = directory / "results.jsonl";
  MqarResults(path).add(record_of("gdn", 1e-2, 0, 0.5));
  const std::string line = contents(path);
  for (const std::size_t length : {std::size_t{1}, line.size() / 2, line.size() - 1}) {
    put(path, line + line.substr(0, length));
    MqarResults results(path);
    EXPECT_EQ(results.records().size(), 1u) << length;
    EXPECT_EQ(contents(path), line);
    results.add(record_of("pgdn", 1e-2, 0, 0.5));
    EXPECT_EQ(MqarResults(path).records().size(), 2u);
  }
}

TEST(MqarResults, OtherFilesAreRefused) {
  const TemporaryDirectory directory;
  const auto path = directory / "results.jsonl";
  for (const char* text : {"not JSON\n", "{}\n", "[1]\n", "{\"settings\": 3}\n"}) {
    put(path, text);
    EXPECT_NE(error_of([&] { MqarResults results(path); }).find("line 1"), std::string::npos) << text;
    EXPECT_EQ(contents(path), text);
  }
}

TEST(MqarResults, BestLearningRateIsTheOneWithTheBestMean) {
  const std::vector<MqarRecord> records = {
      record_of("gdn", 1e-3, 0, 0.9), record_of("gdn", 1e-3, 1, 0.1),  record_of("gdn", 1e-2, 0, 0.6),
      record_of("gdn", 1e-2, 1, 0.8), record_of("pgdn", 1e-3, 0, 0.3),
  };
  const std::vector<MqarBest> best = best_runs(records);
  ASSERT_EQ(best.size(), 2u);
  EXPECT_EQ(best[0].row, "gdn");
  EXPECT_EQ(best[0].lr, 1e-2);
  EXPECT_DOUBLE_EQ(best[0].mean(), 0.7);
  EXPECT_EQ(best[0].lowest(), 0.6);
  EXPECT_EQ(best[0].highest(), 0.8);
  EXPECT_DOUBLE_EQ(best[0].mean(MqarTask{16, 2}), 0.35);
  EXPECT_TRUE(std::isnan(best[0].mean(MqarTask{99, 2})));
  EXPECT_EQ(best[1].row, "pgdn");
}

}  // namespace
}  // namespace deltanet::test
