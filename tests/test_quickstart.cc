// What the quick start shows: pairs of runs while they go on, and a small model of a text as a checkpoint.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "deltanet/error.h"
#include "deltanet/model.h"
#include "deltanet/tokenizer.h"
#include "experiments/mqar_pairs.h"
#include "experiments/mqar_sweep.h"
#include "experiments/text_model.h"

namespace deltanet {
namespace {

MqarProgress validation(int64_t step, double accuracy) {
  return {.step = step, .accuracy = accuracy, .validated = true};
}

TEST(MqarPairs, StepsAndTestsAreThoseOfARun) {
  for (const int64_t steps : {7, 20, 23}) {
    const std::vector<MqarRun> runs = mqar_runs(paired_mqar_sweep(1, steps));
    ASSERT_EQ(runs.size(), 2u);
    const MqarPairs pairs(runs);
    const MqarResult result = run_mqar(runs.front());
    ASSERT_EQ(pairs.steps().size(), result.curve.size()) << steps;
    for (std::size_t i = 0; i < result.curve.size(); ++i) EXPECT_EQ(pairs.steps()[i], result.curve[i].step);
    ASSERT_EQ(pairs.tests().size(), result.scores.size());
    for (std::size_t i = 0; i < result.scores.size(); ++i) EXPECT_EQ(pairs.tests()[i], result.scores[i].task);
  }
}

TEST(MqarPairs, MeansAreOfTheSeedsThatAreThereAndDifferencesOfPairs) {
  const std::vector<MqarRun> runs = mqar_runs(paired_mqar_sweep(3, 100));
  ASSERT_EQ(runs.size(), 6u);  // seeds outermost: base, preconditioned, base, ...
  MqarPairs pairs(runs);
  const int64_t step = pairs.steps()[1];
  pairs.add(runs[0], validation(step, 0.25));
  pairs.add(runs[1], validation(step, 0.5));
  pairs.add(runs[2], validation(step, 0.5));
  pairs.add(runs[5], validation(step, 1.0));
  EXPECT_DOUBLE_EQ(pairs.curve(0)[1].mean, 0.375);
  EXPECT_DOUBLE_EQ(pairs.curve(1)[1].mean, 0.75);
  EXPECT_DOUBLE_EQ(pairs.curve(1, 0)[1].mean, 0.25);  // of the first seed alone
  EXPECT_TRUE(std::isinf(pairs.curve(1, 0)[1].half_width));
  pairs.add(runs[3], validation(step, 1.0));
  EXPECT_DOUBLE_EQ(pairs.curve(1, 0)[1].mean, 0.375);
  EXPECT_NEAR(pairs.curve(1, 0)[1].half_width, 12.7062 * 0.125, 1e-4);  // Student's t of one degree of freedom
  EXPECT_TRUE(std::isnan(pairs.curve(0)[0].mean));
}

TEST(TextModel, IsACheckpointThatLoadsAndHasLearnt) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "The state is a map from keys to values, and every token corrects it.\n";
  const auto folder = std::filesystem::path(testing::TempDir()) / "text_model";
  std::filesystem::remove_all(folder);
  TextModelOptions options{.steps = 60, .vocab_size = 320, .d_model = 32, .layers = 1, .length = 32, .lr = 1e-2};
  std::vector<double> bits;
  const TextModelResult result =
      train_text_model(text, options, folder, [&](const TextModelProgress& now) { bits.push_back(now.bits); });
  ASSERT_EQ(bits.size(), 60u);
  EXPECT_LT(result.bits, bits.front() / 2);

  Model model = Model::load(folder.string());
  const auto tokenizer = load_tokenizer(folder.string());
  EXPECT_EQ(model.vocab_size(), tokenizer->vocab_size());
  EXPECT_EQ(model.parameter_count(), result.parameters);
  const std::vector<int32_t> ids = tokenizer->encode(text);
  EXPECT_EQ(static_cast<int64_t>(ids.size()), result.tokens);
  const std::vector<int64_t> offsets = {0, 64};
  const LossSum loss = model.loss(std::span(ids).first(64), std::span(ids).subspan(1, 64), offsets);
  EXPECT_LT(loss.mean(), 0.5 * std::log(static_cast<double>(model.vocab_size())));

  options.length = static_cast<int64_t>(ids.size());
  EXPECT_THROW(train_text_model(text, options, folder), Error);
}

TEST(TextModel, ProseIsWithoutTablesCodeAndTargetsOfLinks) {
  EXPECT_EQ(prose_of("# Title\n\nSee [the\npage](docs/page.md) and [1].\n\n![A\npicture](docs/a.png)\n\n| a | b "
                     "|\n|---|---|\n\n    code\n\n"
                     "```cpp\nint x;\n\n```\nThe end.\n"),
            "# Title\n\nSee the\npage and [1].\n\nThe end.\n");
}

}  // namespace
}  // namespace deltanet
