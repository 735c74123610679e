// Checkpoints of a run: continuing bit for bit, what is kept, damage, crashes, and what may not be resumed.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "base/file.h"
#include "deltanet/model.h"
#include "file_calls.h"
#include "file_size_limit.h"
#include "temporary_directory.h"
#include "train/run/run_checkpoint.h"
#include "train/run/train_run.h"
#include "train_fixture.h"

namespace deltanet::test {
namespace {

namespace fs = std::filesystem;

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
      first.save(out.path());
    }
    config.log_every = 3;  // may change
    TrainedRun second(config);
    second.load(out.path());
    EXPECT_EQ(second.trainer.state().best_step, 10);
    EXPECT_EQ(second.steps(10, data), std::vector<std::string>(straight.begin() + 10, straight.end())) << precision;
  }
}

// Every number of the state, also those that only a later evaluation or a later failure would look at.
TEST(RunCheckpoint, KeepsTheStateOfTheTrainer) {
  const TrainState state{.step = 7,
                         .optimizer_steps = 5,
                         .bad_steps = 3,
                         .bad_in_a_row = 2,
                         .last_good_loss = 1.0 / 3,
                         .best_loss = 2.0 / 7,
                         .best_step = 4};
  const TemporaryDirectory out;
  TrainedRun run(tiny_config()), again(tiny_config());
  run.trainer.restore(state);
  run.save(out.path());
  again.load(out.path());
  const TrainState& found = again.trainer.state();
  EXPECT_EQ(found.step, state.step);
  EXPECT_EQ(found.optimizer_steps, state.optimizer_steps);
  EXPECT_EQ(found.bad_steps, state.bad_steps);
  EXPECT_EQ(found.bad_in_a_row, state.bad_in_a_row);
  EXPECT_EQ(found.last_good_loss, state.last_good_loss);
  EXPECT_EQ(found.best_loss, state.best_loss);
  EXPECT_EQ(found.best_step, state.best_step);
  for (const double none : {std::numeric_limits<double>::infinity(), 0.0}) {
    run.trainer.restore({.step = 8, .best_loss = none});
    run.save(out.path());
    again.load(out.path());
    EXPECT_EQ(again.trainer.state().best_loss, none);
    EXPECT_TRUE(std::isnan(again.trainer.state().last_good_loss));
  }
}

TEST(RunCheckpoint, IsAModelDirectory) {
  const TemporaryDirectory out;
  TrainConfig config = tiny_config();
  TrainedRun run(config);
  const PatternSource data(config.sequence_length, 1000);
  run.steps(2, data);
  run.save(out.path());
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
    run.save(out.path());
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
  EXPECT_NE(error_of([&] { run.load(out.path()); }).find("no checkpoint"), std::string::npos);
  for (int i = 0; i < 2; ++i) {
    run.steps(1, data);
    run.save(out.path());
  }

  config.lr = 0.5;
  TrainedRun other(config);
  const std::string error = error_of([&] { other.load(out.path()); });
  EXPECT_NE(error.find("lr was 0.01 and is 0.5"), std::string::npos) << error;

  for (const char* name : {"trainer.safetensors", "model.safetensors"}) {
    const fs::path path = out / "step-2" / name;
    const std::string good = contents(path);
    std::string bad = good;
    bad[bad.size() - 5] ^= 1;
    put(path, bad);
    const std::string damage = error_of([&] { run.load(out.path()); });
    EXPECT_NE(damage.find("checksum"), std::string::npos) << damage;
    put(path, good.substr(0, good.size() - 4));
    const std::string shorter = error_of([&] { run.load(out.path()); });
    EXPECT_NE(shorter.find(name), std::string::npos) << shorter;
    EXPECT_NE(shorter.find("go on from an earlier step (1)"), std::string::npos) << shorter;
    put(path, good);
  }
  EXPECT_EQ(error_of([&] { run.load(out.path()); }), "");
  put(out / "last", "7 and more\n");
  EXPECT_NE(error_of([&] { run.load(out.path()); }), "");
}

TEST(RunCheckpoint, AFullDiskLeavesTheOldOne) {
  const TemporaryDirectory out;
  const TrainConfig config = tiny_config();
  TrainedRun run(config);
  const PatternSource data(config.sequence_length, 1000);
  run.steps(1, data);
  run.save(out.path());
  run.steps(1, data);
  {
    const FileSizeLimit limit(100000);
    EXPECT_NE(error_of([&] { run.save(out.path()); }), "");
  }
  EXPECT_EQ(out.names(), (std::vector<std::string>{"last", "step-1"}));
  TrainedRun again(config);
  again.load(out.path());
  EXPECT_EQ(again.trainer.state().step, 1);
}

TEST(RunCheckpoint, LeftoversOfACrashAreRemoved) {
  const TemporaryDirectory out;
  const TrainConfig config = tiny_config();
  TrainedRun run(config);
  const PatternSource data(config.sequence_length, 1000);
  run.steps(1, data);
  run.save(out.path());
  fs::create_directory(out / "step-2.unfinished");  // killed while writing
  put(out / "step-2.unfinished/model.safetensors", "half");
  run.steps(2, data);
  run.save(out.path());  // removes the leftovers
  EXPECT_EQ(out.names(), (std::vector<std::string>{"last", "step-1", "step-3"}));
  put(out / "last", "1");  // killed before `last` was renewed, or set back by hand
  run.load(out.path());
  mend_run_folder(out.path(), run.trainer.state());
  EXPECT_EQ(out.names(), (std::vector<std::string>{"last", "step-1"}));
}

// A run that dies at any call of a save goes on from the checkpoint before or from this one.
TEST(RunCheckpoint, AProcessThatDiesLeavesTheOldOneOrTheNew) {
  TrainConfig config = tiny_config();
  config.keep_checkpoints = 1;
  const PatternSource data(config.sequence_length, 4);  // the same at each step: it gets better
  TrainedRun run(config), again(config);
  run.steps(1, data);
  run.trainer.evaluate(data);
  const TemporaryDirectory before;
  run.save(before.path());
  run.steps(4, data);
  run.trainer.evaluate(data);
  ASSERT_EQ(run.trainer.state().best_step, 5);
  Ended ended = Ended::kCrashed;
  std::set<int64_t> outcomes;
  int crash = 0;
  for (; ended == Ended::kCrashed && crash < 200; ++crash) {
    const TemporaryDirectory out;
    fs::copy(before.path(), out.path(), fs::copy_options::recursive);
    ended = outcome_of_crash(crash, [&] { run.save(out.path()); });
    ASSERT_NE(ended, Ended::kFailed);
    ASSERT_EQ(error_of([&] { again.load(out.path()); }), "") << "at call " << crash;
    const int64_t step = again.trainer.state().step;
    outcomes.insert(step);
    const auto best = named_step(out.path(), "best");
    EXPECT_TRUE(best && fs::exists(step_directory(out.path(), *best))) << "at call " << crash;
    mend_run_folder(out.path(), again.trainer.state());
    EXPECT_EQ(named_step(out.path(), "best"), step) << "at call " << crash;
    again.steps(1, data);
    again.save(out.path());
    EXPECT_EQ(step_to_resume(out.path()), step + 1);
  }
  EXPECT_EQ(ended, Ended::kFinished);
  EXPECT_GT(crash, 10);
  EXPECT_EQ(outcomes, (std::set<int64_t>{1, 5}));
}

TEST(RunCheckpoint, SoDoesAMachineThatLosesItsPower) {
  const TemporaryDirectory out;
  TrainConfig config = tiny_config();
  config.keep_checkpoints = 1;
  const PatternSource data(config.sequence_length, 1000);
  TrainedRun run(config);
  for (int i = 0; i < 3; ++i) {
    run.steps(1, data);
    run.trainer.evaluate(data);
    const PowerLoss watch;
    run.save(out.path());
    EXPECT_EQ(watch.complaints(), std::vector<std::string>());
  }
}

TEST(RunCheckpoint, WithoutLastTheNewestIsResumed) {
  const TemporaryDirectory out;
  TrainedRun run(tiny_config());
  const PatternSource data(run.trainer.config().sequence_length, 1000);
  for (int i = 0; i < 2; ++i) {
    run.steps(1, data);
    run.save(out.path());
  }
  fs::remove(out / "last");  // killed after the first renaming
  EXPECT_EQ(step_to_resume(out.path()), 2);
  const std::string last = (out / "last").string();
  EXPECT_EQ(why_another_step(out.path()), last + " is missing: going on from step 2, the newest that is complete");
  put(out / "last", "9\n");  // names what is not there
  EXPECT_EQ(why_another_step(out.path()),
            last + " names step 9, whose checkpoint is not there: going on from step 2, the newest that is complete");
  TrainedRun again(tiny_config());
  again.load(out.path());
  mend_run_folder(out.path(), again.trainer.state());
  EXPECT_EQ(again.trainer.state().step, 2);
  EXPECT_EQ(named_step(out.path(), "last"), 2);
  EXPECT_EQ(why_another_step(out.path()), "");
  put(out / "last", "1\n");  // set back
  EXPECT_EQ(why_another_step(out.path()), "");
}

TEST(RunCheckpoint, BestIsNamedAgain) {
  const TemporaryDirectory out;
  TrainConfig config = tiny_config();
  config.keep_checkpoints = 1;
  config.lr = 0;
  config.weight_decay = 0;
  TrainedRun run(config);
  const PatternSource data(config.sequence_length, 1000);
  run.steps(1, data);
  run.trainer.evaluate(data);
  run.save(out.path());
  fs::remove(out / "best");  // killed between `last` and `best`
  TrainedRun again(config);
  again.load(out.path());
  mend_run_folder(out.path(), again.trainer.state());
  again.steps(1, data);
  again.save(out.path());
  EXPECT_EQ(out.names(), (std::vector<std::string>{"best", "last", "step-1", "step-2"}));
  TrainState before_it = again.trainer.state();  // `last` was set back to a step before the best one
  before_it.best_step = 0;
  mend_run_folder(out.path(), before_it);
  EXPECT_FALSE(fs::exists(out / "best"));
}

TEST(RunCheckpoint, OtherModelsAreRefused) {
  const TemporaryDirectory out;
  TrainConfig config = tiny_config();
  TrainedRun run(config);
  run.steps(1, PatternSource(config.sequence_length, 1000));
  run.save(out.path());
  config.model_table += "\nnorm_eps = 0.1\n";  // all shapes stay
  TrainedRun other(config);
  const std::string error = error_of([&] { other.load(out.path()); });
  EXPECT_NE(error.find("model.norm_eps was 1e-06 and is 0.1"), std::string::npos) << error;
}

TEST(RunCheckpoint, StepsMayBeAddedWhereTheLearningRatesStay) {
  struct Case {
    const char* schedule;
    int done;
    bool may;
  };
  // tiny_config: 20 steps, warm-up 5; wsd falls in the last fifth.
  for (const auto& [schedule, done, may] : {Case{"constant", 20, true}, Case{"wsd", 16, true}, Case{"wsd", 17, false},
                                            Case{"cosine", 5, true}, Case{"cosine", 6, false}}) {
    const TemporaryDirectory out;
    TrainConfig config = tiny_config();
    config.schedule = schedule;
    TrainedRun run(config);
    run.steps(done, PatternSource(config.sequence_length, 1000));
    run.save(out.path());
    config.steps = 40;
    TrainedRun longer(config);
    const std::string error = error_of([&] { longer.load(out.path()); });
    EXPECT_EQ(error.empty(), may) << schedule << " " << done << ": " << error;
    if (!may) {
      EXPECT_NE(error.find("steps was 20 and is 40"), std::string::npos) << error;
    }
  }
}

TEST(RunCheckpoint, StartsFromTheWeightsOfAnother) {
  const TemporaryDirectory out;
  TrainConfig config = tiny_config();
  TrainedRun run(config);
  const PatternSource data(config.sequence_length, 1000);
  run.steps(3, data);
  run.save(out.path());
  TrainConfig tuned;
  tuned.init_from = (out / "step-3").string();
  tuned.sequence_length = config.sequence_length;
  tuned.batch_size = config.batch_size;
  tuned.precision = "f32";
  tuned.threads = 1;
  tuned.seed = 5;
  TrainedRun other(tuned);
  EXPECT_EQ(weights_checksum(other.trainer), weights_checksum(run.trainer));
  EXPECT_EQ(other.trainer.state().step, 0);
  tuned.vocab_size = 32;  // not what the checkpoint holds
  EXPECT_NE(error_of([&] { TrainedRun{tuned}; }).find("embeddings"), std::string::npos);
}

// Whole runs in a folder, on a text of their own.
class Runs {
 public:
  Runs() {
    config_ = tiny_config();
    config_.tokenizer = "bytes";
    config_.steps = 4;
    config_.checkpoint_every = 2;
    config_.out = (folder_ / "run").string();
    write("text.txt", 'a');
    config_.data = (folder_ / "text.txt").string();
  }
  void write(const char* name, char first) {
    std::string text;
    for (int i = 0; i < 5000; ++i) text += static_cast<char>(i % 7 == 0 ? first : '0' + i % 10);
    put(folder_ / name, text);
  }
  TrainResult go(bool resume = false) {
    TrainObserver silent;
    return go(resume, silent);
  }
  TrainResult go(bool resume, TrainObserver& observer) {
    TrainConfig config = config_;
    config.vocab_size = 256;
    const TrainingData data = load_training_data(config, 256);
    const auto processes = single_process();
    return run_training(config, data, resume, observer, stop_, *processes);
  }

  TemporaryDirectory folder_;
  TrainConfig config_;
  std::atomic<bool> stop_{false};
};

TEST(TrainRun, OtherDataAreRefusedButTheirPathMayChange) {
  Runs runs;
  runs.stop_ = true;
  EXPECT_TRUE(runs.go().interrupted);
  runs.stop_ = false;
  runs.write("moved.txt", 'a');
  runs.write("other.txt", 'b');
  runs.config_.data = (runs.folder_ / "other.txt").string();
  const std::string error = error_of([&] { runs.go(true); });
  EXPECT_NE(error.find("data was "), std::string::npos) << error;
  runs.config_.data = (runs.folder_ / "moved.txt").string();
  EXPECT_EQ(runs.go(true).step, 4);
}

// Data are told apart wherever they differ: all else is the same, length included.
TEST(TrainRun, DataThatDifferInAnyQuarterAreRefused) {
  Runs runs;
  runs.stop_ = true;
  EXPECT_TRUE(runs.go().interrupted);
  runs.stop_ = false;
  const std::string text = contents(runs.folder_ / "text.txt");
  runs.config_.data = (runs.folder_ / "changed.txt").string();
  for (std::size_t quarter = 0; quarter < 4; ++quarter) {
    std::string changed = text;
    for (std::size_t i = quarter * text.size() / 4; i < (quarter + 1) * text.size() / 4; ++i) {
      if (changed[i] == '0') changed[i] = 'o';
    }
    put(runs.folder_ / "changed.txt", changed);
    const std::string error = error_of([&] { runs.go(true); });
    EXPECT_NE(error.find("data was "), std::string::npos) << "quarter " << quarter << ": " << error;
  }
}

TEST(TrainRun, AFolderThatHoldsARunIsRefused) {
  Runs runs;
  runs.go();
  EXPECT_NE(error_of([&] { runs.go(); }).find("holds a run already"), std::string::npos);
  fs::remove(runs.folder_ / "run/last");  // its checkpoints are there all the same
  EXPECT_NE(error_of([&] { runs.go(); }).find("holds a run already"), std::string::npos);
}

TEST(TrainRun, ADiskThatIsTooSmallIsRefusedAtTheStart) {
  Runs runs;
  runs.config_.steps = runs.config_.keep_checkpoints = 1'000'000'000'000;  // petabytes
  runs.config_.checkpoint_every = 1;
  runs.stop_ = true;  // after one step, should it begin
  const std::string error = error_of([&] { runs.go(); });
  EXPECT_NE(error.find("for checkpoints of"), std::string::npos) << error;
  EXPECT_FALSE(fs::exists(runs.folder_ / "run/metrics.jsonl"));
}

// Stops a run after some steps.
class Stopper final : public TrainObserver {
 public:
  Stopper(int64_t step, std::atomic<bool>& stop) : step_(step), stop_(stop) {}
  void saved(const fs::path&) override { ++saved_; }
  void stepped(const Metrics& metrics) override { stop_ = metrics.step >= step_; }
  void logged(const Metrics& metrics) override { logged_.push_back(metrics); }

  std::vector<Metrics> logged_;
  int saved_ = 0;

 private:
  int64_t step_;
  std::atomic<bool>& stop_;
};

// Evaluations, checkpoints, lines of metrics and points of TensorBoard: of a run that was interrupted as of one that
// was not.
TEST(TrainRun, GoesOnWithItsRecords) {
  Runs straight, stopped;
  for (Runs* runs : {&straight, &stopped}) {
    runs->config_.steps = 7;
    runs->config_.log_every = 2;
    runs->config_.eval_every = 3;
    runs->config_.checkpoint_every = 4;
    runs->config_.keep_checkpoints = 10;
    runs->config_.tensorboard = true;
  }
  const TrainResult whole = straight.go();
  Stopper stopper(3, stopped.stop_);  // the signal comes during step 4
  EXPECT_TRUE(stopped.go(false, stopper).interrupted);
  EXPECT_EQ(step_to_resume(stopped.folder_ / "run"), 4);
  stopped.stop_ = false;
  Stopper rest(100, stopped.stop_);
  const TrainResult result = stopped.go(true, rest);
  EXPECT_FALSE(result.interrupted);
  EXPECT_EQ(exact(result.best_loss), exact(whole.best_loss));

  const auto lines_of = [](Runs& runs) {
    std::vector<std::string> lines;
    std::ifstream file(runs.folder_ / "run/metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const std::size_t speed = line.find("\"tokens_per_second\"");
      lines.push_back(line.erase(speed, line.find(',', speed) - speed));
    }
    return lines;
  };
  EXPECT_EQ(lines_of(straight).size(), 5u);  // after steps 2, 3, 4, 6 and 7
  EXPECT_EQ(lines_of(stopped), lines_of(straight));
  EXPECT_EQ(named_step(stopped.folder_ / "run", "best"), named_step(straight.folder_ / "run", "best"));

  std::vector<std::string> events;
  for (const auto& entry : fs::directory_iterator(stopped.folder_ / "run")) {
    if (entry.path().filename().string().starts_with("events.")) events.push_back(contents(entry.path()));
  }
  // The second part says that what comes from its first step on takes the place of what there was.
  std::string all;
  for (const std::string& file : events) all += file;
  const auto restart_at = [](char step) { return std::string("\x10") + step + "\x3a\x02\x08\x01"; };
  EXPECT_NE(all.find(restart_at(1)), std::string::npos);
  EXPECT_NE(all.find(restart_at(5)), std::string::npos);
}

// Spoils a weight once a step is saved.
class Spoiler final : public TrainObserver {
 public:
  explicit Spoiler(int64_t step) : step_(step) {}
  void started(const Trainer& trainer, const TrainingData&) override { trainer_ = &const_cast<Trainer&>(trainer); }
  void saved(const fs::path&) override {
    if (trainer_->state().step == step_) trainer_->weights().vectors()[0] = std::numeric_limits<float>::quiet_NaN();
  }

 private:
  int64_t step_;
  Trainer* trainer_ = nullptr;
};

TEST(TrainRun, StepsThatFailDoNotReplaceGoodCheckpoints) {
  Runs runs;
  runs.config_.checkpoint_every = runs.config_.eval_every = 1;
  runs.config_.keep_checkpoints = 1;
  runs.config_.max_bad_steps = 2;
  Spoiler spoiler(2);
  EXPECT_NE(error_of([&] { runs.go(false, spoiler); }).find("2 steps in a row"), std::string::npos);
  EXPECT_EQ(step_to_resume(runs.folder_ / "run"), 2);
  EXPECT_EQ(runs.go(true).step, 4);
}

// What run_training() says, in order.
class Listener final : public TrainObserver {
 public:
  void noticed(const std::string& what) override { noticed_.push_back(what); }
  std::vector<std::string> noticed_;
};

TEST(TrainRun, SaysWhyItDoesNotGoOnFromLast) {
  Runs runs;
  runs.go();
  runs.config_.steps = 6;
  Listener listener;
  runs.go(true, listener);
  EXPECT_TRUE(listener.noticed_.empty());
  put(runs.folder_ / "run/last", "5\n");
  runs.go(true, listener);
  ASSERT_EQ(listener.noticed_.size(), 1u);
  EXPECT_NE(listener.noticed_[0].find("names step 5, whose checkpoint is not there: going on from step 6"),
            std::string::npos);
  for (const int step : {2, 4, 6}) fs::remove_all(runs.folder_ / "run" / ("step-" + std::to_string(step)));
  EXPECT_NE(
      error_of([&] { runs.go(true, listener); }).find("names step 6, whose checkpoint is not there, and no other"),
      std::string::npos);
  EXPECT_EQ(named_step(runs.folder_ / "run", "last"), 6) << "no new run in the place of the old one";
}

TEST(TrainRun, SaysWhichPartOfTheModelWasNotFinite) {
  Runs runs;
  runs.config_.checkpoint_every = 1;
  runs.config_.max_bad_steps = 1;
  Spoiler spoiler(2);  // the first vector is the norm in front of the first mixer
  const std::string error = error_of([&] { runs.go(false, spoiler); });
  EXPECT_NE(error.find("what first is not finite in a pass is that of layer 0, the recurrence (pgdn), whose weight "
                       "model.layers.0.attn_norm.weight is not finite"),
            std::string::npos)
      << error;
}

TEST(TrainRun, AFolderThatIsInUseIsRefused) {
  Runs runs;
  fs::create_directory(runs.folder_ / "run");
  {
    const DirectoryLock lock(runs.folder_ / "run");
    EXPECT_NE(error_of([&] { runs.go(); }).find("in use"), std::string::npos);
  }
  EXPECT_EQ(runs.go().step, 4);
}

}  // namespace
}  // namespace deltanet::test
