// The training step: it learns, accumulates, skips what is not finite; checkpoints that continue bit for bit.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>

#include "deltanet/model.h"
#include "file_size_limit.h"
#include "temporary_directory.h"
#include "train/run_checkpoint.h"
#include "train/trainer.h"
#include "train_fixture.h"

namespace deltanet::test {
namespace {

namespace fs = std::filesystem;

std::string exact(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

struct TrainedRun {
  explicit TrainedRun(const TrainConfig& config) : processes(single_process()), trainer(config, *processes) {
    trainer.initialise();
  }
  std::vector<std::string> steps(int count, const BatchSource& data) {
    std::vector<std::string> losses;
    for (int i = 0; i < count; ++i) losses.push_back(exact(trainer.step(data).loss));
    return losses;
  }
  std::unique_ptr<Communicator> processes;
  Trainer trainer;
};

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

TEST(Trainer, PlansThatDoNotFitAreRefused) {
  TrainConfig config = tiny_config();
  config.sequence_length = 1 << 20;
  config.micro_batch = config.batch_size = 4096;
  const auto processes = single_process();
  const std::string error = error_of([&] { Trainer(config, *processes); });
  EXPECT_NE(error.find("memory"), std::string::npos) << error;
  EXPECT_NE(error_of([] { check_fits({.weights = 2, .gradients = 3, .moments = 4, .activations = 5}, 13); }), "");
  EXPECT_EQ(error_of([] { check_fits({.weights = 2, .gradients = 3, .moments = 4, .activations = 5}, 14); }), "");
}

TEST(RunCheckpoint, ResumesBitForBit) {
  struct Case {
    const char* precision;
    int64_t length;  // of the sequences; the threads share out long ones (train/batch_model.h)
  };
  for (const auto& [precision, length] : {Case{"f32", 32}, Case{"bf16", 32}, Case{"bf16", 256}}) {
    TrainConfig config = tiny_config();
    config.precision = precision;
    config.sequence_length = length;
    config.threads = 2;
    const PatternSource data(config.sequence_length, 1000);
    const auto straight = TrainedRun(config).steps(20, data);
    const TemporaryDirectory out;
    {
      TrainedRun first(config);
      EXPECT_EQ(first.steps(10, data), std::vector<std::string>(straight.begin(), straight.begin() + 10));
      first.trainer.evaluate(data);
      save_run_checkpoint(out.path(), first.trainer);
    }
    config.log_every = 3;  // may change
    TrainedRun second(config);
    load_run_checkpoint(out.path(), second.trainer);
    EXPECT_EQ(second.trainer.state().best_step, 10);
    EXPECT_EQ(second.steps(10, data), std::vector<std::string>(straight.begin() + 10, straight.end())) << precision;
  }
}

TEST(RunCheckpoint, IsAModelDirectory) {
  const TemporaryDirectory out;
  TrainConfig config = tiny_config();
  TrainedRun run(config);
  const PatternSource data(config.sequence_length, 1000);
  run.steps(2, data);
  save_run_checkpoint(out.path(), run.trainer);
  Batch batch;
  data.fill(8, 4, batch);
  Model model = Model::load((out / "step-2").string());
  EXPECT_EQ(exact(model.loss(batch.ids, batch.targets, batch.offsets).mean()), exact(run.trainer.step(data).loss));
}

TEST(RunCheckpoint, KeepsTheNewestAndTheBest) {
  const TemporaryDirectory out;
  TrainConfig config = tiny_config();
  config.keep_checkpoints = 2;
  config.lr = 0;
  config.weight_decay = 0;
  TrainedRun run(config);
  const PatternSource data(config.sequence_length, 1000);
  for (int i = 0; i < 5; ++i) {
    run.trainer.step(data);
    if (i == 1) run.trainer.evaluate(data);
    save_run_checkpoint(out.path(), run.trainer);
  }
  EXPECT_EQ(out.names(), (std::vector<std::string>{"best", "last", "step-2", "step-4", "step-5"}));
  EXPECT_EQ(named_step(out.path(), "last"), 5);
  EXPECT_EQ(named_step(out.path(), "best"), 2);
}

TEST(RunCheckpoint, DamageAndOtherConfigsAreNamed) {
  const TemporaryDirectory out;
  TrainConfig config = tiny_config();
  TrainedRun run(config);
  const PatternSource data(config.sequence_length, 1000);
  EXPECT_NE(error_of([&] { load_run_checkpoint(out.path(), run.trainer); }).find("no checkpoint"), std::string::npos);
  run.steps(1, data);
  save_run_checkpoint(out.path(), run.trainer);

  config.lr = 0.5;
  TrainedRun other(config);
  const std::string error = error_of([&] { load_run_checkpoint(out.path(), other.trainer); });
  EXPECT_NE(error.find("lr was 0.01 and is 0.5"), std::string::npos) << error;

  for (const char* name : {"trainer.safetensors", "model.safetensors"}) {
    const fs::path path = out / "step-1" / name;
    const std::string good = contents(path);
    std::string bad = good;
    bad[bad.size() - 5] ^= 1;
    put(path, bad);
    const std::string damage = error_of([&] { load_run_checkpoint(out.path(), run.trainer); });
    EXPECT_NE(damage.find("checksum"), std::string::npos) << damage;
    put(path, good.substr(0, good.size() - 4));
    EXPECT_NE(error_of([&] { load_run_checkpoint(out.path(), run.trainer); }), "");
    put(path, good);
  }
  EXPECT_EQ(error_of([&] { load_run_checkpoint(out.path(), run.trainer); }), "");
  put(out / "last", "7 and more\n");
  EXPECT_NE(error_of([&] { load_run_checkpoint(out.path(), run.trainer); }), "");
}

TEST(RunCheckpoint, AFullDiskLeavesTheOldOne) {
  const TemporaryDirectory out;
  const TrainConfig config = tiny_config();
  TrainedRun run(config);
  const PatternSource data(config.sequence_length, 1000);
  run.steps(1, data);
  save_run_checkpoint(out.path(), run.trainer);
  run.steps(1, data);
  {
    const FileSizeLimit limit(100000);
    EXPECT_NE(error_of([&] { save_run_checkpoint(out.path(), run.trainer); }), "");
  }
  EXPECT_EQ(out.names(), (std::vector<std::string>{"last", "step-1"}));
  TrainedRun again(config);
  load_run_checkpoint(out.path(), again.trainer);
  EXPECT_EQ(again.trainer.state().step, 1);
}

TEST(RunCheckpoint, LeftoversOfACrashAreRemoved) {
  const TemporaryDirectory out;
  const TrainConfig config = tiny_config();
  TrainedRun run(config);
  const PatternSource data(config.sequence_length, 1000);
  run.steps(1, data);
  save_run_checkpoint(out.path(), run.trainer);
  fs::create_directory(out / "step-2.unfinished");  // killed while writing
  put(out / "step-2.unfinished/model.safetensors", "half");
  run.steps(2, data);
  save_run_checkpoint(out.path(), run.trainer);  // removes the leftovers
  EXPECT_EQ(out.names(), (std::vector<std::string>{"last", "step-1", "step-3"}));
  put(out / "last", "1\n");  // killed before `last` was renewed
  load_run_checkpoint(out.path(), run.trainer);
  EXPECT_EQ(out.names(), (std::vector<std::string>{"last", "step-1"}));
}

}  // namespace
}  // namespace deltanet::test
