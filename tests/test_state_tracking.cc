// State tracking: every answer is found again from the ids, by other means than it was made.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "data/synthetic/mqar.h"
#include "data/synthetic/state_tracking.h"
#include "eval/dump.h"
#include "eval/task.h"
#include "temporary_directory.h"

namespace deltanet::test {
namespace {

using eval::Example;
using eval::Labelled;
using eval::LoadedTask;
using eval::TaskModel;
using eval::TaskOptions;

const StateTask& task_of(const std::string& name) {
  for (const StateTask& task : state_tasks()) {
    if (task.name == name) return task;
  }
  throw Error("no task " + name);
}

// Reads an expression written in the ids of modular arithmetic, without reducing anything on the way.
class Reader {
 public:
  explicit Reader(const std::vector<int32_t>& ids) {
    for (const int32_t id : ids) text_ += std::string(" 01234+-*=()")[id];
  }

  std::string text_;
  int64_t brackets_ = 0;

  double value() {
    const double value = sum();
    EXPECT_EQ(text_.substr(at_), "=") << text_;
    return value;
  }

 private:
  double sum() {
    double value = product();
    while (text_[at_] == '+' || text_[at_] == '-') {
      const bool plus = text_[at_++] == '+';
      value += plus ? product() : -product();
      value = std::fmod(value, 5);
    }
    return value;
  }
  double product() {
    double value = factor();
    while (text_[at_] == '*') {
      ++at_;
      value = std::fmod(value * factor(), 5);
    }
    return value;
  }
  double factor() {
    const char c = text_[at_++];
    if (c == '-') return -product();  // of all that is multiplied with it
    if (c == '(') {
      ++brackets_;
      const double value = sum();
      EXPECT_EQ(text_[at_++], ')') << text_;
      return value;
    }
    EXPECT_TRUE(c >= '0' && c <= '4') << text_;
    return c - '0';
  }

  std::size_t at_ = 0;
};

class StateTasks : public testing::TestWithParam<std::string> {
 protected:
  const StateTask& task_ = task_of(GetParam());
};

TEST_P(StateTasks, ExamplesHaveTheirLengthAndIdsOfTheVocabulary) {
  std::set<int32_t> seen;
  for (const int64_t length : {task_.least_length, task_.least_length + 1, int64_t{7}, int64_t{256}}) {
    for (int64_t i = 0; i < 50; ++i) {
      const LabelledExample example = draw_state_example(task_, length, 3, i);
      ASSERT_EQ(static_cast<int64_t>(example.ids.size()), length);
      ASSERT_EQ(example.targets.size(), example.ids.size());
      for (const int32_t id : example.ids) ASSERT_TRUE(id >= 0 && id < task_.vocab_size) << id;
      for (const int32_t target : example.targets) {
        ASSERT_TRUE(target == kNoTarget || (target >= 0 && target < task_.vocab_size)) << target;
      }
      EXPECT_NE(example.targets.back(), kNoTarget);
      seen.insert(example.ids.begin(), example.ids.end());
    }
  }
  EXPECT_EQ(*seen.rbegin(), task_.vocab_size - 1);
}

TEST_P(StateTasks, ExampleIsAFunctionOfSeedLengthAndIndex) {
  const auto ids = [&](int64_t length, uint64_t seed, int64_t index) {
    return draw_state_example(task_, length, seed, index).ids;
  };
  EXPECT_EQ(ids(64, 1, 5), ids(64, 1, 5));
  EXPECT_NE(ids(64, 1, 5), ids(64, 1, 6));
  EXPECT_NE(ids(64, 1, 5), ids(64, 2, 5));
  std::vector<int32_t> longer = ids(66, 1, 5);
  longer.resize(64);
  EXPECT_NE(ids(64, 1, 5), longer);
}

TEST_P(StateTasks, LengthsOutOfRangeAreRefused) {
  for (const int64_t length : {int64_t{-1}, int64_t{0}, task_.least_length - 1, (int64_t{1} << 20) + 1}) {
    const std::string error = error_of([&] { draw_state_example(task_, length, 0, 0); });
    EXPECT_NE(error.find("length: given " + std::to_string(length)), std::string::npos) << error;
  }
  EXPECT_EQ(error_of([&] { draw_state_example(task_, task_.least_length, 0, 0); }), "");
}

INSTANTIATE_TEST_SUITE_P(Tasks, StateTasks,
                         testing::Values("parity", "modular_arithmetic", "modular_arithmetic_brackets", "s3", "s5"),
                         [](const auto& test) { return test.param; });

void expect_only_the_last_is_asked(const LabelledExample& example) {
  for (std::size_t i = 0; i + 1 < example.targets.size(); ++i) EXPECT_EQ(example.targets[i], kNoTarget);
}

TEST(StateTracking, ParityIsThatOfTheOnes) {
  int ones = 0, odd = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    const LabelledExample example = draw_state_example(task_of("parity"), 41, 0, i);
    expect_only_the_last_is_asked(example);
    bool is_odd = false;
    for (const int32_t id : example.ids) {
      ASSERT_TRUE(id == 1 || id == 2) << id;
      is_odd ^= id == 2;
      ones += id == 2;
    }
    EXPECT_EQ(example.targets.back(), is_odd ? 2 : 1);
    odd += is_odd;
  }
  // Five standard deviations of a fair coin: 0.5 sqrt(n).
  EXPECT_NEAR(ones, 20500, 5 * 0.5 * std::sqrt(41000.0));
  EXPECT_NEAR(odd, 500, 5 * 0.5 * std::sqrt(1000.0));
}

TEST(StateTracking, ExpressionsHaveTheirValue) {
  for (const bool brackets : {false, true}) {
    const StateTask& task = task_of(brackets ? "modular_arithmetic_brackets" : "modular_arithmetic");
    std::map<int32_t, int> answers;
    for (const int64_t length : {2, 3, 4, 5, 6, 7, 8, 9, 10, 41, 256}) {
      for (int64_t i = 0; i < 100; ++i) {
        const LabelledExample example = draw_state_example(task, length, 0, i);
        expect_only_the_last_is_asked(example);
        Reader reader(example.ids);
        const double rest = std::fmod(reader.value(), 5);
        EXPECT_EQ(example.targets.back(), 1 + std::lround(rest < 0 ? rest + 5 : rest)) << reader.text_;
        if (brackets) {
          EXPECT_EQ(reader.brackets_ > 0, length > 3) << reader.text_;
        } else {
          EXPECT_EQ(reader.brackets_, 0) << reader.text_;
        }
        ++answers[example.targets.back()];
      }
    }
    EXPECT_EQ(answers.size(), 5u);
  }
}

// The running product moves a row of things as its factors do one after the other.
template <int N>
void expect_products(const StateTask& task) {
  std::vector<std::array<int, N>> group;
  std::array<int, N> images;
  std::iota(images.begin(), images.end(), 0);
  do {
    group.push_back(images);
  } while (std::next_permutation(images.begin(), images.end()));
  ASSERT_EQ(static_cast<int64_t>(group.size()), task.vocab_size);
  EXPECT_EQ(task.chances, task.vocab_size);
  std::vector<int> counts(group.size());
  for (int64_t i = 0; i < 100; ++i) {
    const LabelledExample example = draw_state_example(task, 120, 0, i);
    std::array<int, N> places;  // where each thing is
    std::iota(places.begin(), places.end(), 0);
    for (std::size_t t = 0; t < example.ids.size(); ++t) {
      for (int& place : places) place = group[example.ids[t]][place];
      EXPECT_EQ(group[example.targets[t]], places);
      ++counts[example.targets[t]];
    }
  }
  for (const int count : counts) EXPECT_GT(count, 0);
}

TEST(StateTracking, WordsHaveTheirProducts) {
  expect_products<3>(task_of("s3"));
  expect_products<5>(task_of("s5"));
}

// ---- as tasks of an evaluation

class SyntheticTasks : public testing::Test {
 protected:
  LoadedTask load(const std::string& task) { return eval::load_task(eval::find_task(task), options_, model_); }
  std::string error(const std::string& task) {
    return error_of([&] { load(task); });
  }
  // The same before any model is there.
  std::string early_error(const std::string& task) {
    const std::string early = error_of([&] { eval::find_task(task).check(eval::find_task(task), options_); });
    EXPECT_EQ(early, error(task));
    return early;
  }
  static void expect(const std::string& error, const std::string& part) {
    EXPECT_NE(error.find(part), std::string::npos) << "the error is: " << error;
  }

  TaskModel model_ = {.vocab_size = 128};  // and no tokenizer
  TaskOptions options_ = [] {
    TaskOptions options;
    options.samples = 3;
    return options;
  }();
};

TEST_F(SyntheticTasks, StateTrackingAsksItsExamplesAtEveryLength) {
  options_.lengths = {16, 33};
  options_.seed = 4;
  for (const StateTask& task : state_tasks()) {
    const LoadedTask loaded = load(std::string(task.name));
    ASSERT_EQ(loaded.examples.size(), 6u);
    for (std::size_t i = 0; i < 6; ++i) {
      const auto& asked = std::get<Labelled>(loaded.examples[i].ask);
      const LabelledExample expected =
          draw_state_example(task, options_.lengths[i / 3], 4, static_cast<int64_t>(i % 3));
      EXPECT_EQ(asked.ids, expected.ids);
      EXPECT_EQ(asked.targets, expected.targets);
      EXPECT_EQ(asked.chance, 1 / static_cast<double>(task.chances));
      EXPECT_EQ(loaded.examples[i].tags.at("length"), static_cast<double>(options_.lengths[i / 3]));
    }
    EXPECT_EQ(loaded.about.at("ids"), task.ids);
    EXPECT_EQ(eval::find_task(task.name).metric, "score");
  }
}

TEST_F(SyntheticTasks, RecallAsksItsTestSetsAtAnyLengthAndNumberOfPairs) {
  options_.lengths = {64, 256};
  options_.pairs = {4, 32};
  for (const char* filler : {"random", "zeros"}) {
    options_.filler = filler;
    const LoadedTask loaded = load("mqar");
    const std::vector<MqarTask> tasks = {{64, 4}, {256, 4}, {256, 32}};
    ASSERT_EQ(loaded.examples.size(), 9u);
    ASSERT_EQ(loaded.notes.size(), 1u);
    expect(loaded.notes.front(), "64 tokens have no room for 32 pairs");
    const MqarFiller kind = options_.filler == "zeros" ? MqarFiller::kZeros : MqarFiller::kRandom;
    const MqarData data({.vocab_size = 128, .filler = kind}, {{tasks[0], 3}, {tasks[1], 3}, {tasks[2], 3}}, 0,
                        MqarSplit::kTest);
    for (int64_t i = 0; i < 9; ++i) {
      const auto& asked = std::get<Labelled>(loaded.examples[i].ask);
      MqarBatch batch;
      data.read(i, 1, batch);
      EXPECT_EQ(asked.ids, batch.ids);
      EXPECT_EQ(asked.targets, batch.targets);
      EXPECT_EQ(loaded.examples[i].tags.at("length"), static_cast<double>(tasks[i / 3].length));
      EXPECT_EQ(loaded.examples[i].tags.at("pairs"), static_cast<double>(tasks[i / 3].pairs));
    }
  }
  options_.lengths = options_.pairs = {};
  model_.vocab_size = 8192;
  EXPECT_EQ(load("mqar").examples.size(), 3 * mqar_tests().size());
}

TEST_F(SyntheticTasks, ImpossibleOnesAreRefused) {
  options_.lengths = {64};
  expect(early_error("mqar"), "--lengths without --pairs");
  options_.pairs = {17};
  expect(early_error("mqar"), "no room for 17 pairs");
  options_.pairs = {0};
  expect(error("mqar"), "at least one pair");
  options_.pairs = {4};
  options_.filler = "noise";
  expect(early_error("mqar"), "--filler: given \"noise\"; expected random or zeros");
  options_.filler = "random";
  model_.vocab_size = 9;
  expect(error("mqar"), "given a model of 9 ids; expected at least 10");
  expect(error("s5"), "given a model of 9 ids; expected at least 120: the permutations");
  options_.lengths = {1};
  expect(error("modular_arithmetic"), "given a model of 9 ids; expected at least 10");
  model_.vocab_size = 10;
  expect(early_error("modular_arithmetic"), "length: given 1; expected 2 to");
}

TEST_F(SyntheticTasks, DumpsHoldIdsAndTargets) {
  options_.lengths = {12};
  const LoadedTask loaded = load("s3");
  const auto line = eval::dumped(eval::find_task("s3"), loaded.examples.front());
  const auto& asked = std::get<Labelled>(loaded.examples.front().ask);
  EXPECT_EQ(line.at("ids"), asked.ids);
  EXPECT_EQ(line.at("targets"), asked.targets);
  EXPECT_EQ(line.at("length"), 12);
  EXPECT_EQ(line.at("task"), "s3");
}

}  // namespace
}  // namespace deltanet::test
