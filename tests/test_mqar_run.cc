// MQAR: tiny models learn it, runs do not disturb each other, results survive a crash.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "experiments/mqar_results.h"
#include "experiments/mqar_sweep.h"
#include "temporary_directory.h"

namespace deltanet::test {
namespace {

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
  // Means since the validation before; how low the last one is depends on how early the accuracy is reached.
  EXPECT_LT(result.curve.back().loss, 0.5 * result.curve.front().loss);
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

// At even distances, the last one at the end; each loss is the mean since the validation before.
TEST(MqarRun, ValidatesAtEvenDistances) {
  MqarRun run = tiny_run("gdn");
  run.lr = 1e-7;  // learns nothing: all steps have about the same loss
  std::vector<int64_t> validated;
  double lowest = 1e300, highest = 0;
  const MqarResult result = run_mqar(run, [&](const MqarProgress& p) {
    if (p.validated) validated.push_back(p.step);
    lowest = std::min(lowest, p.loss);
    highest = std::max(highest, p.loss);
  });
  EXPECT_EQ(validated, (std::vector<int64_t>{11, 21, 32, 42}));
  for (std::size_t i = 0; i < validated.size(); ++i) EXPECT_EQ(result.curve[i].step, validated[i]);
  EXPECT_LT(highest, 1.5 * lowest);
  EXPECT_NEAR(lowest, std::log(16), 1);  // of guessing among 16
}

TEST(MqarSweep, HasTheTasksThatFit) {
  MqarSweep sweep;
  sweep.models = {"dn", "gdn"};
  sweep.d_models = {32};
  sweep.lrs = {1e-3, 1e-2};
  sweep.seeds = {4, 5};
  sweep.lengths = {16, 32};
  sweep.pairs = {4, 5, 8, 9};
  sweep.examples = 700;
  sweep.base = tiny_run("gdn");
  sweep.base.options.vocab_size = 64;
  std::set<std::pair<int64_t, int64_t>> tasks;
  std::set<std::string> rows;
  const std::vector<MqarRun> runs = mqar_runs(sweep);
  for (const MqarRun& run : runs) {
    ASSERT_EQ(run.train.size(), 1u);
    EXPECT_EQ(run.train.front().examples, 700);
    EXPECT_EQ(run.tests.front().task, run.train.front().task);
    EXPECT_EQ(run.tests.front().examples, 7);
    EXPECT_TRUE(run.more_tests.empty());
    tasks.emplace(run.train.front().task.length, run.train.front().task.pairs);
    rows.insert(run.row);
  }
  EXPECT_EQ(tasks, (std::set<std::pair<int64_t, int64_t>>{{16, 4}, {32, 4}, {32, 5}, {32, 8}}));  // 4 tokens a pair
  EXPECT_EQ(rows, (std::set<std::string>{"delta_net", "gdn"}));
  EXPECT_EQ(runs.size(), tasks.size() * 2 * 2 * 2);
}

TEST(MqarRun, QuickOneIsValid) {
  for (const int64_t steps : {1, 20, 2500}) {
    const MqarRun run = quick_mqar_run(steps);
    EXPECT_NO_THROW(mqar_config(run));
    EXPECT_GE(mqar_steps(run), steps);
    EXPECT_LE(mqar_steps(run), steps + 2);
    EXPECT_DOUBLE_EQ(mqar_config(run).initializer_range, 1 / std::sqrt(static_cast<double>(run.d_model)));
  }
  EXPECT_DOUBLE_EQ(mqar_config(MqarRun{}).initializer_range, 0.02);
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
  run.initializer_range = -1;
  EXPECT_NE(error_of([&] { run_mqar(run); }).find("initializer_range"), std::string::npos);
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
      record_of("gdn", 1e-3, 0, 0.9),  record_of("gdn", 1e-3, 1, 0.1),  record_of("gdn", 1e-2, 0, 0.6),
      record_of("gdn", 1e-2, 1, 0.8),  record_of("pgdn", 1e-3, 0, 0.3), record_of("gdn", 3e-2, 0, 0.65),
      record_of("gdn", 3e-2, 1, 0.65),  // its worst is the best one
  };
  const std::vector<MqarBest> best = best_runs(records);
  ASSERT_EQ(best.size(), 2u);
  EXPECT_EQ(best[0].row, "gdn");
  EXPECT_EQ(best[0].lr, 1e-2);
  EXPECT_DOUBLE_EQ(best[0].mean(), 0.7);
  EXPECT_EQ(best[0].lowest(), 0.6);
  EXPECT_EQ(best[0].median(), (0.6 + 0.8) / 2);
  EXPECT_EQ(best[0].highest(), 0.8);
  EXPECT_DOUBLE_EQ(best[0].mean(MqarTask{16, 2}), 0.35);
  EXPECT_TRUE(std::isnan(best[0].mean(MqarTask{99, 2})));
  EXPECT_EQ(best[1].row, "pgdn");
}

// Whatever they differ in but learning rate and seed, they are not seeds of one model.
TEST(MqarResults, RunsWithOtherSettingsAreOtherGroups) {
  const std::vector<void (*)(MqarRun&)> changes = {
      [](MqarRun& run) { run.row = "pgdn"; },
      [](MqarRun& run) { run.d_model = 64; },
      [](MqarRun& run) { run.layers = 1; },
      [](MqarRun& run) { run.heads = 1; },
      [](MqarRun& run) { run.options.vocab_size = 32; },
      [](MqarRun& run) { run.options.power = 0.02; },
      [](MqarRun& run) { run.options.filler = MqarFiller::kRandom; },
      [](MqarRun& run) { run.train[0].examples = 321; },
      [](MqarRun& run) { run.tests[1].task.length = 20; },
      [](MqarRun& run) { run.more_tests.clear(); },
      [](MqarRun& run) { run.epochs = 3; },
      [](MqarRun& run) { run.batch = 16; },
      [](MqarRun& run) { run.validations = 5; },
      [](MqarRun& run) { run.weight_decay = 0; },
      [](MqarRun& run) { run.initializer_range = 0; },
      [](MqarRun& run) { run.stop_accuracy = 0.5; },
  };
  std::vector<MqarRecord> records = {record_of("gdn", 1e-3, 0, 0.5), record_of("gdn", 1e-3, 1, 0.5)};
  for (const auto& change : changes) {
    for (const uint64_t seed : {0, 1}) {
      records.push_back(record_of("gdn", 1e-2, seed, 0.9));
      change(records.back().run);
    }
  }
  const std::vector<MqarBest> best = best_runs(records);
  ASSERT_EQ(best.size(), changes.size() + 1);
  for (const MqarBest& one : best) EXPECT_EQ(one.seeds.size(), 2u) << one.group;
  EXPECT_EQ(best.front().lr, 1e-3);
}

}  // namespace
}  // namespace deltanet::test
