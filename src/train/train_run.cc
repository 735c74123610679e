#include "train/train_run.h"

#include <chrono>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "deltanet/error.h"
#include "train/run_checkpoint.h"
#include "train/tensorboard.h"

namespace deltanet {
namespace {

namespace fs = std::filesystem;

// Seconds of training, without evaluations and checkpoints.
class StopWatch {
 public:
  void start() { begin_ = Clock::now(); }
  void stop() { seconds_ += std::chrono::duration<double>(Clock::now() - begin_).count(); }
  double take() { return std::exchange(seconds_, 0.0); }
  double seconds() const { return seconds_; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_;
  double seconds_ = 0;
};

void prepare_folder(const TrainConfig& config, bool resume) {
  const fs::path out(config.out);
  std::error_code error;
  fs::create_directories(out, error);
  if (error) throw Error("[train] out: " + config.out + ": " + error.message());
  if (!resume && fs::exists(out / "last")) {
    throw Error("[train] out: " + config.out + " holds a run already; go on with it (--resume) or name another folder");
  }
  remove_abandoned(out);
  AtomicFile file(out / "config.toml");  // also shows that the folder can be written to
  file.write(toml_text(config));
  file.commit();
}

// What is written about a run besides checkpoints.
class Records {
 public:
  Records(const TrainConfig& config, int64_t from_step) : metrics_(fs::path(config.out) / "metrics.jsonl", from_step) {
    if (config.tensorboard) tensorboard_.emplace(config.out, from_step + 1);
  }

  void append(const Metrics& metrics) {
    metrics_.append(metrics);
    if (!tensorboard_) return;
    Scalars scalars = {{"loss", metrics.loss},
                       {"lr", metrics.lr},
                       {"grad_norm", metrics.grad_norm},
                       {"tokens_per_second", metrics.tokens_per_second}};
    if (metrics.val_loss) scalars.emplace_back("val_loss", *metrics.val_loss);
    tensorboard_->write(metrics.step, scalars);
  }

 private:
  MetricsFile metrics_;
  std::optional<TensorBoardWriter> tensorboard_;
};

// All processes stop after the same step, whichever of them was asked to.
bool asked_to_stop(const std::atomic<bool>& stop, Communicator& processes) {
  double asked = stop.load() ? 1 : 0;
  processes.sum(&asked, 1);
  return asked > 0;
}

}  // namespace

TrainResult run_training(const TrainConfig& config, const TrainingData& data, bool resume, TrainObserver& observer,
                         const std::atomic<bool>& stop, Communicator& processes) {
  validate(config);
  const bool speaks = processes.rank() == 0;
  const fs::path out(config.out);
  Trainer trainer(config, processes);  // the plan must fit before the folder is touched
  const bool goes_on = resume && named_step(out, "last").has_value();
  if (goes_on) {
    load_run_checkpoint(out, trainer);
  } else {
    trainer.initialise();
  }
  std::optional<Records> records;
  if (speaks) {
    prepare_folder(config, resume);
    records.emplace(config, trainer.state().step);
    observer.started(trainer, data);
  }

  const auto is_due = [&](int64_t step, int64_t every) {
    return every > 0 && (step % every == 0 || step == config.steps);
  };
  const auto save = [&] {
    save_run_checkpoint(out, trainer);
    if (speaks) observer.saved(step_directory(out, trainer.state().step));
  };
  const auto tokens_per_step = static_cast<double>(config.batch_size * config.sequence_length);
  StopWatch watch;
  int64_t timed_steps = 0;
  bool interrupted = false;
  while (trainer.state().step < config.steps && !interrupted) {
    watch.start();
    const StepReport report = trainer.step(*data.train);
    watch.stop();
    ++timed_steps;
    Metrics metrics{.step = report.step,
                    .loss = report.loss,
                    .lr = report.lr,
                    .grad_norm = report.grad_norm,
                    .tokens = report.step * config.batch_size * config.sequence_length,
                    .tokens_per_second = tokens_per_step * static_cast<double>(timed_steps) / watch.seconds(),
                    .bad_steps = trainer.state().bad_steps,
                    .val_loss = {}};
    interrupted = asked_to_stop(stop, processes);
    if (data.held_out && is_due(report.step, config.eval_every)) metrics.val_loss = trainer.evaluate(*data.held_out);
    const bool logs = metrics.val_loss || is_due(report.step, config.log_every);
    if (speaks) {
      observer.stepped(metrics);
      if (logs) {
        records->append(metrics);
        observer.logged(metrics);
      }
    }
    if (logs) {
      watch.take();
      timed_steps = 0;
    }
    const bool is_best = metrics.val_loss && trainer.state().best_step == report.step;
    if (is_best || is_due(report.step, config.checkpoint_every) || interrupted || report.step == config.steps) save();
  }
  return {.step = trainer.state().step,
          .interrupted = interrupted && trainer.state().step < config.steps,
          .best_loss = trainer.state().best_loss};
}

}  // namespace deltanet
