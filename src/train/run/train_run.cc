#include "train/run/train_run.h"

#include <array>
#include <chrono>
#include <memory>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "deltanet/error.h"
#include "train/run/run_checkpoint.h"
#include "train/run/tensorboard.h"

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

// The folder for this run alone.
std::unique_ptr<DirectoryLock> take_folder(const TrainConfig& config, bool resume) {
  std::error_code error;
  fs::create_directories(config.out, error);
  if (error) throw Error("[train] out: " + config.out + ": " + error.message());
  auto lock = std::make_unique<DirectoryLock>(config.out);
  if (lock->taken_by_another()) {
    throw Error("[train] out: " + config.out + " is in use by another run; wait for it or name another folder");
  }
  check_run_folder(config, resume);
  remove_abandoned(config.out);
  return lock;
}

// So that a full disk is found before the first step, not by the first checkpoint.
void check_disk(const Trainer& trainer) {
  const TrainConfig& config = trainer.config();
  const int64_t floats = 3 * trainer.layout().parameter_count();  // weights and two moments
  const auto bytes = static_cast<double>(floats) * sizeof(float);
  const auto often = [&](int64_t every) { return every > 0 ? config.steps / every : 0; };
  // Those that are kept, the best one, and the one that is being written; fewer in a short run.
  const int64_t most =
      std::min(config.keep_checkpoints + 2, 1 + often(config.checkpoint_every) + often(config.eval_every));
  const double needed = bytes * static_cast<double>(std::max<int64_t>(1, most - count_checkpoints(config.out)));
  std::error_code unknown;
  const auto left = static_cast<double>(fs::space(config.out, unknown).available);
  if (unknown || left >= needed) return;
  throw Error("[train] out: " + config.out + " has " + gigabytes(left) + " left; expected " + gigabytes(needed) +
              " for checkpoints of " + gigabytes(bytes) +
              " each: make room, name another folder, or lower keep_checkpoints");
}

void write_config(const TrainConfig& config) {
  AtomicFile file(fs::path(config.out) / "config.toml");  // also shows that the folder can be written to
  file.write(toml_text(config));
  file.commit();
}

// All processes must start from the same place: one that sees another folder, or other data, would mix what it has into
// the weights of all.
void check_agreement(Trainer& trainer, const RunIdentity& identity) {
  Communicator& processes = trainer.processes();
  if (processes.size() == 1) return;
  uint64_t hash = kEmptyHash;
  for (const auto& [name, value] : identity) {
    hash = hash_bytes(name.data(), name.size(), hash);
    hash = hash_bytes(value.data(), value.size(), hash);
  }
  const std::array<uint64_t, 3> own = {static_cast<uint64_t>(trainer.state().step), hash, weights_checksum(trainer)};
  std::array<uint64_t, 3> first = own;
  processes.broadcast(first.data(), sizeof first);
  if (own == first) return;
  throw Error("[train] out: this process starts from step " + std::to_string(own[0]) + ", the first one from step " +
              std::to_string(first[0]) + (own[1] == first[1] ? "" : ", with another config or other data") +
              (own[2] == first[2] ? "" : ", with other weights") +
              "; expected the same folder and the same files on all machines");
}

// What is written about a run besides checkpoints.
class Records {
 public:
  Records(const TrainConfig& config, int64_t from_step) : metrics_(fs::path(config.out) / "metrics.jsonl", from_step) {
    if (config.tensorboard) tensorboard_.emplace(config.out, from_step + 1);
  }

  void sync() {
    try {
      metrics_.sync();
    } catch (const Error&) {
      // A file that somebody removed is no reason to lose a checkpoint.
    }
  }

  void append(const Metrics& metrics) {
    metrics_.append(metrics);
    if (!tensorboard_) return;
    Scalars scalars = {{"loss", metrics.loss},
                       {"lr", metrics.lr},
                       {"grad_norm", metrics.grad_norm},
                       {"tokens_per_second", metrics.tokens_per_second}};
    if (metrics.val_loss) scalars.emplace_back("val_loss", *metrics.val_loss);
    for (const auto& [task, score] : metrics.tasks) scalars.emplace_back("tasks/" + task, score);
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

void check_run_folder(const TrainConfig& config, bool resume) {
  if (resume || !step_to_resume(config.out)) return;
  throw Error("[train] out: " + config.out + " holds a run already; go on with it (--resume) or name another folder");
}

TrainResult run_training(const TrainConfig& config, const TrainingData& data, bool resume, TrainObserver& observer,
                         const std::atomic<bool>& stop, Communicator& processes) {
  validate(config);
  const bool speaks = processes.rank() == 0;
  const fs::path out(config.out);
  Trainer trainer(config, processes);  // the plan must fit before the folder is touched
  RunIdentity identity = config_identity(config);
  identity.merge(data_identity(data));
  std::unique_ptr<DirectoryLock> lock;
  if (speaks) lock = take_folder(config, resume);
  const bool goes_on = resume && step_to_resume(out);
  const std::string another_step = resume ? why_another_step(out) : "";
  if (speaks && !another_step.empty()) observer.noticed(another_step);
  if (speaks) observer.preparing(goes_on ? "reading the checkpoint" : "making the weights");
  if (goes_on) {
    load_run_checkpoint(out, trainer, identity);
  } else {
    trainer.initialize();
  }
  check_agreement(trainer, identity);
  std::optional<Records> records;
  if (speaks) {
    if (trainer.state().step < config.steps) check_disk(trainer);
    if (goes_on) mend_run_folder(out, trainer.state());
    write_config(config);
    records.emplace(config, trainer.state().step);
    observer.started(trainer, data);
  }

  const auto is_due = [&](int64_t step, int64_t every) {
    return every > 0 && (step % every == 0 || step == config.steps);
  };
  const auto save = [&] {
    if (speaks) records->sync();  // a checkpoint on disk has its metrics there too
    save_run_checkpoint(out, trainer, identity);
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
                    .val_loss = {},
                    .tasks = {}};
    interrupted = asked_to_stop(stop, processes);
    if (data.held_out && is_due(report.step, config.eval_every)) metrics.val_loss = trainer.evaluate(*data.held_out);
    if (speaks && !interrupted && !config.eval_tasks.empty() && is_due(report.step, config.steps_between_tasks())) {
      metrics.tasks = observer.evaluate(trainer);
    }
    const bool logs = metrics.val_loss || !metrics.tasks.empty() || is_due(report.step, config.log_every);
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
    const bool is_end = interrupted || report.step == config.steps;
    const bool is_routine = is_due(report.step, config.checkpoint_every) && !report.skipped;
    if (is_best || is_end || is_routine) save();
  }
  return {.step = trainer.state().step,
          .interrupted = interrupted && trainer.state().step < config.steps,
          .best_loss = trainer.state().best_loss};
}

}  // namespace deltanet
