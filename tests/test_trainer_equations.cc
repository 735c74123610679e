// What a training step computes, against equations that are written down here: the norm and the update of every
// parameter, and the same run on one rank and on several.

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <numeric>

#include "deltanet/error.h"
#include "deltanet/model.h"
#include "model/config/config.h"
#include "nn/cross_entropy.h"
#include "ranks.h"
#include "train_fixture.h"

namespace deltanet::test {
namespace {

std::vector<float> values_of(Trainer& trainer, const Parameter& parameter) {
  std::vector<float> values(static_cast<std::size_t>(parameter.size));
  trainer.weights().copy_values(parameter, values.data(), 1);
  return values;
}

// Sequences of which the even ones have few targets: a mean over ranks is not the mean over targets.
class UnevenTargets final : public BatchSource {
 public:
  UnevenTargets(int64_t sequence_length, int64_t period) : all_(sequence_length, period) {}

  void fill(int64_t first, int64_t count, Batch& out) const override {
    all_.fill(first, count, out);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t sample = (first + i) % samples_per_epoch();
      for (int64_t t = out.offsets[i]; t < out.offsets[i + 1] && sample % 2 == 0; ++t) {
        if (t - out.offsets[i] > sample % 7) out.targets[static_cast<std::size_t>(t)] = nn::kIgnoredLabel;
      }
    }
  }
  int64_t samples_per_epoch() const override { return all_.samples_per_epoch(); }

 private:
  PatternSource all_;
};

// The first step moves every value by lr (g / (|g| + eps) + weight_decay p), matrices and vectors alike, where g is the
// gradient times clip / norm, if the norm of all gradients is above clip.
TEST(TrainerStep, EveryParameterFollowsTheEquation) {
  TrainConfig config = tiny_config();
  config.warmup = 2;
  config.lr = 4e-2;  // the first step has half of it
  config.eps = 1e-3;
  config.weight_decay = 0.5;
  const UnevenTargets data(config.sequence_length, 100);
  Batch batch;
  data.fill(0, config.batch_size, batch);
  Model model = Model::from_config(config_text(config.model_config(), "float32"), config.seed, {.threads = 1});
  const LossSum loss = model.loss_and_gradients(batch.ids, batch.targets, batch.offsets);
  double squares = 0;
  for (const ParameterInfo& info : model.parameters()) {
    const auto gradient = model.gradient(info.name);
    for (const float g : gradient) squares += static_cast<double>(g) * g;
  }
  const double norm = std::sqrt(squares);

  for (const double clip : {norm / 3, norm * 1.01, 0.0}) {
    config.clip = clip;
    TrainedRun run(config);
    const StepReport report = run.trainer.step(data);
    EXPECT_NEAR(report.loss, loss.mean(), 1e-6 * loss.mean());
    EXPECT_NEAR(report.grad_norm, norm, 1e-6 * norm);
    EXPECT_EQ(report.lr, 2e-2);
    EXPECT_EQ(report.step, 1);
    const double factor = clip > 0 && clip < norm ? clip / norm : 1;
    for (const Parameter& parameter : run.trainer.layout().parameters()) {
      const std::vector<float> before = model.parameter(parameter.name), after = values_of(run.trainer, parameter);
      const auto gradient = model.gradient(parameter.name);
      for (std::size_t i = 0; i < after.size(); ++i) {
        const double g = factor * gradient[i];
        const double expected = before[i] - 2e-2 * (g / (std::fabs(g) + 1e-3) + 0.5 * before[i]);
        ASSERT_NEAR(after[i], expected, 3e-6) << parameter.name << "[" << i << "], clip " << clip;
      }
    }
  }
}

// What a run on some ranks leaves, as rank 0 sees it.
struct Outcome {
  std::vector<double> losses, norms, evaluations;
  std::vector<float> weights;
  std::vector<std::vector<float>> moments;
  double best_loss = 0;
  int64_t best_step = 0;
};

Outcome run_on(int ranks, const TrainConfig& config, const BatchSource& data, const BatchSource& held_out) {
  Outcome first;
  std::vector<std::vector<float>> weights(static_cast<std::size_t>(ranks));
  Ranks(ranks).run([&](Communicator& processes) {
    Trainer trainer(config, processes);
    trainer.initialize();
    Outcome own;
    for (int step = 0; step < 6; ++step) {
      const StepReport report = trainer.step(data);
      own.losses.push_back(report.loss);
      own.norms.push_back(report.grad_norm);
      if (step % 2 == 1) own.evaluations.push_back(trainer.evaluate(held_out));
    }
    own.best_loss = trainer.state().best_loss;
    own.best_step = trainer.state().best_step;
    for (const ModelAdamW::Moment& moment : trainer.moments()) {
      const int64_t begin = (*moment.begins)[processes.rank()], end = (*moment.begins)[processes.rank() + 1];
      EXPECT_EQ(static_cast<int64_t>(moment.own->size()), end - begin);
      std::vector<float> all(static_cast<std::size_t>(moment.begins->back()));
      processes.gather(moment.own->data(), all.data(), *moment.begins);
      own.moments.push_back(all);
    }
    const Layout& layout = trainer.layout();
    own.weights.assign(trainer.weights().matrices(), trainer.weights().matrices() + layout.matrices_size());
    own.weights.insert(own.weights.end(), trainer.weights().vectors(),
                       trainer.weights().vectors() + layout.vectors_size());
    weights[static_cast<std::size_t>(processes.rank())] = own.weights;
    if (processes.rank() == 0) first = own;
  });
  for (const std::vector<float>& others : weights) EXPECT_EQ(others, first.weights) << "ranks have other weights";
  return first;
}

void expect_near(const std::vector<float>& got, const std::vector<float>& want, double relative) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(want[i])));
    worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - want[i]));
  }
  EXPECT_LE(worst, relative * largest);
}

TEST(TrainerRanks, SeveralRanksTrainAsOne) {
  TrainConfig config = tiny_config();
  config.batch_size = 7;  // parts of different sizes
  config.lr = 1e-3;
  config.eps = 1e-5;  // otherwise the first steps go by the signs of gradients, those of rounding errors included
  config.eval_batches = 2;
  const UnevenTargets data(config.sequence_length, 100), held_out(config.sequence_length, 11);
  const Outcome one = run_on(1, config, data, held_out);
  for (const int ranks : {2, 3, 7}) {
    for (const int64_t micro_batch : {1, 2, 7}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, passes of " + std::to_string(micro_batch));
      config.micro_batch = micro_batch;
      const Outcome many = run_on(ranks, config, data, held_out);
      for (std::size_t i = 0; i < one.losses.size(); ++i) {
        EXPECT_NEAR(many.losses[i], one.losses[i], 1e-6 * one.losses[i]) << i;
        EXPECT_NEAR(many.norms[i], one.norms[i], 1e-5 * one.norms[i]) << i;
      }
      for (std::size_t i = 0; i < one.evaluations.size(); ++i) {
        EXPECT_NEAR(many.evaluations[i], one.evaluations[i], 1e-6 * one.evaluations[i]) << i;
      }
      EXPECT_EQ(many.best_step, one.best_step);
      EXPECT_NEAR(many.best_loss, one.best_loss, 1e-6 * one.best_loss);
      expect_near(many.weights, one.weights, 1e-5);
      for (std::size_t i = 0; i < one.moments.size(); ++i) expect_near(many.moments[i], one.moments[i], 1e-4);
    }
  }
}

// The mean over the targets of the first eval_batches batches, or of all there are.
TEST(TrainerEvaluation, IsTheMeanOverTargets) {
  TrainConfig config = tiny_config();
  config.batch_size = 3;
  config.micro_batch = 2;
  for (const auto& [batches, samples] : {std::pair<int64_t, int64_t>{1, 3}, {2, 6}, {9, 8}}) {
    config.eval_batches = batches;
    TrainedRun run(config);
    const UnevenTargets held_out(config.sequence_length, 8);
    Batch batch;
    held_out.fill(0, samples, batch);
    Model model = Model::from_config(config_text(config.model_config(), "float32"), config.seed, {.threads = 1});
    const double expected = model.loss(batch.ids, batch.targets, batch.offsets).mean();
    EXPECT_NEAR(run.trainer.evaluate(held_out), expected, 1e-6 * expected);
  }
}

TEST(TrainerEvaluation, RemembersTheFirstOfTheBest) {
  TrainedRun run(tiny_config());
  const PatternSource data(32, 100);
  const double before = run.trainer.evaluate(data);
  EXPECT_EQ(run.trainer.state().best_loss, before);
  EXPECT_EQ(run.trainer.state().best_step, 0);
  run.trainer.restore({.step = 5, .best_loss = before, .best_step = 2});
  EXPECT_EQ(run.trainer.evaluate(data), before);  // not better
  EXPECT_EQ(run.trainer.state().best_step, 2);
  run.trainer.restore({.step = 5, .best_loss = before + 1e-9, .best_step = 2});
  run.trainer.evaluate(data);
  EXPECT_EQ(run.trainer.state().best_step, 5);
  EXPECT_EQ(run.trainer.state().best_loss, before);
}

// Moments are shared out, also where the first rank writes those of all into a checkpoint.
TEST(TrainerRanks, EachOwnsItsPartOfTheMoments) {
  const TrainConfig config = tiny_config();
  const auto single = single_process();
  const MemoryPlan one = Trainer(config, *single).memory();
  std::mutex mutex;
  int64_t of_ranks = 0;
  Ranks(3).run([&](Communicator& processes) {
    const Trainer trainer(config, processes);
    const std::lock_guard lock(mutex);
    of_ranks += trainer.memory().moments;
    EXPECT_EQ(trainer.memory().gradients, one.gradients);
    EXPECT_NEAR(static_cast<double>(trainer.memory().moments), static_cast<double>(one.moments) / 3, 64);
  });
  EXPECT_EQ(of_ranks, one.moments);
  EXPECT_EQ(one.moments, 2 * one.gradients);
}

TEST(TrainerRanks, MoreRanksThanSequencesAreRefused) {
  TrainConfig config = tiny_config();
  config.batch_size = 2;
  Ranks(3).run([&](Communicator& processes) {
    try {
      Trainer trainer(config, processes);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("each of the 3 processes"), std::string::npos) << error.what();
    }
  });
  Ranks(2).run([&](Communicator& processes) { Trainer(config, processes).initialize(); });
}

}  // namespace
}  // namespace deltanet::test
