// The training step: it learns, accumulates, skips what is not finite.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>
#include <utility>
#include <vector>

#include "temporary_directory.h"
#include "train/trainer.h"
#include "train_fixture.h"

namespace deltanet::test {
namespace {

TEST(Trainer, OverfitsOneBatch) {
  for (const char* precision : {"f32", "bf16"}) {
    TrainConfig config = tiny_config();
    config.precision = precision;
    config.steps = 300;
    TrainedRun run(config);
    const PatternSource data(config.sequence_length, config.batch_size);
    double loss = 0;
    for (int64_t step = 0; step < config.steps && !(step > 0 && loss < 0.01); ++step)
      loss = run.trainer.step(data).loss;
    EXPECT_LT(loss, 0.01) << precision;
    EXPECT_LT(run.trainer.evaluate(data), 0.02) << precision;
  }
}

TEST(Trainer, AccumulationEqualsOneLargeBatch) {
  TrainConfig config = tiny_config();
  config.batch_size = 6;
  config.lr = 1e-3;
  config.eps = 1e-5;  // otherwise the first steps go by the signs of gradients, those of rounding errors included
  const PatternSource data(config.sequence_length, 100);
  std::vector<StepReport> reports[3];
  const int64_t sizes[] = {6, 2, 4};  // the last: passes of different sizes
  for (std::size_t i = 0; i < 3; ++i) {
    config.micro_batch = sizes[i];
    TrainedRun run(config);
    for (int step = 0; step < 10; ++step) reports[i].push_back(run.trainer.step(data));
  }
  for (const std::size_t i : {1, 2}) {
    for (std::size_t step = 0; step < 10; ++step) {
      const StepReport &one = reports[0][step], &many = reports[i][step];
      EXPECT_NEAR(many.loss, one.loss, 1e-5 * one.loss) << step;
      EXPECT_NEAR(many.grad_norm, one.grad_norm, 1e-4 * one.grad_norm) << step;
    }
  }
}

TEST(Trainer, ClippingBoundsTheGradient) {
  TrainConfig config = tiny_config();
  config.clip = 1e-9;  // far below eps of AdamW: almost nothing moves
  config.weight_decay = 0;
  const PatternSource data(config.sequence_length, 100);
  TrainedRun clipped(config);
  const double before = clipped.trainer.step(data).loss;
  config.clip = 0;
  TrainedRun free(config);
  EXPECT_EQ(free.trainer.step(data).loss, before);
  const PatternSource same(config.sequence_length, config.batch_size);
  EXPECT_NEAR(clipped.trainer.evaluate(same), before, 2e-3);
  EXPECT_LT(free.trainer.evaluate(same), before - 1e-2);
}

TEST(Trainer, RecomputationChangesNothing) {
  TrainConfig config = tiny_config();
  const PatternSource data(config.sequence_length, 100);
  const auto kept = TrainedRun(config).steps(5, data);
  config.recompute = true;
  EXPECT_EQ(TrainedRun(config).steps(5, data), kept);
}

TEST(Trainer, StepsThatAreNotFiniteAreSkippedAndThenStopTheRun) {
  TrainConfig config = tiny_config();
  config.max_bad_steps = 3;
  TrainedRun run(config);
  const PatternSource data(config.sequence_length, 100);
  run.steps(2, data);
  float& weight = run.trainer.weights().vectors()[run.trainer.layout().layers()[1].mlp_norm];
  const float before = weight;
  weight = std::numeric_limits<float>::quiet_NaN();
  for (int step = 0; step < 2; ++step) EXPECT_TRUE(run.trainer.step(data).skipped);
  EXPECT_EQ(run.trainer.state().bad_steps, 2);
  EXPECT_EQ(run.trainer.state().step, 4);
  EXPECT_EQ(run.trainer.state().optimizer_steps, 2);
  weight = before;
  EXPECT_FALSE(run.trainer.step(data).skipped);  // nothing else was spoilt
  EXPECT_EQ(run.trainer.state().bad_in_a_row, 0);
  weight = std::numeric_limits<float>::quiet_NaN();
  run.steps(2, data);
  const std::string error = error_of([&] { run.trainer.step(data); });
  for (const char* part : {"3 steps in a row", "layers.1", "learning rate", "last good loss"}) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
  }
}

// Remembers which samples were asked for.
class Recorded final : public BatchSource {
 public:
  explicit Recorded(int64_t sequence_length) : all_(sequence_length, 1000) {}
  void fill(int64_t first, int64_t count, Batch& out) const override {
    for (int64_t i = first; i < first + count; ++i) asked_.push_back(i);
    all_.fill(first, count, out);
  }
  int64_t samples_per_epoch() const override { return all_.samples_per_epoch(); }
  std::vector<int64_t> take() { return std::exchange(asked_, {}); }

 private:
  PatternSource all_;
  mutable std::vector<int64_t> asked_;
};

// Every step has samples of its own: those of steps that were skipped do not come again.
TEST(Trainer, StepsReadTheSamplesOfTheirNumber) {
  using Samples = std::vector<int64_t>;
  TrainConfig config = tiny_config();
  config.micro_batch = 3;
  TrainedRun run(config);
  Recorded data(config.sequence_length);
  run.trainer.step(data);
  EXPECT_EQ(data.take(), (Samples{0, 1, 2, 3}));
  run.trainer.step(data);
  EXPECT_EQ(data.take(), (Samples{4, 5, 6, 7}));
  run.trainer.restore({.step = 7, .optimizer_steps = 5, .bad_steps = 2});
  run.trainer.step(data);
  EXPECT_EQ(data.take(), (Samples{28, 29, 30, 31}));
  EXPECT_EQ(run.trainer.state().optimizer_steps, 6);
}

TEST(Trainer, PlansThatDoNotFitAreRefused) {
  TrainConfig config = tiny_config();
  config.sequence_length = 1 << 20;
  config.micro_batch = config.batch_size = 4096;
  const auto processes = single_process();
  const std::string error = error_of([&] { Trainer(config, *processes); });
  // 4096 x 2^20 rows of a model with two layers take thousands of bytes each.
  EXPECT_TRUE(std::regex_search(error, std::regex("memory: needs [0-9.e+]+ GB .*activations [0-9.]+e\\+0[45] GB")))
      << error;
  EXPECT_NE(error_of([] { check_fits({.weights = 2, .gradients = 3, .moments = 4, .activations = 5}, 13); }), "");
  EXPECT_EQ(error_of([] { check_fits({.weights = 2, .gradients = 3, .moments = 4, .activations = 5}, 14); }), "");
}

}  // namespace
}  // namespace deltanet::test
