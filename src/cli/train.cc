// `deltanet train`: trains a language model from a config file or a recipe.

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/text.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/processes.h"
#include "cli/terminal.h"
#include "cli/train_tasks.h"
#include "deltanet/error.h"
#include "train/run/run_checkpoint.h"
#include "train/run/train_run.h"

namespace deltanet::cli {
namespace {

namespace fs = std::filesystem;

// ---- interruption

std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

// The first signal lets the step finish and be saved; a second one leaves at once.
void on_signal(int number) {
  if (stop_requested.exchange(true)) _exit(128 + number);
  constexpr char kText[] = "\nfinishing this step and saving; once more to leave at once\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText, sizeof kText - 1);
}

void catch_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {  // mpirun and batch systems pass on SIGUSR1
    struct sigaction before {};
    sigaction(number, nullptr, &before);
    if (number != SIGHUP || before.sa_handler != SIG_IGN) sigaction(number, &action, nullptr);  // nohup means it
  }
}

// ---- the screen

// On a terminal one line that is written over and a line for each evaluation; otherwise a line for each logged step.
class Screen final : public TrainObserver {
 public:
  Screen(const TrainConfig& config, TrainTasks* tasks)
      : config_(config), tasks_(tasks), is_live_(isatty(STDOUT_FILENO) != 0 && isatty(STDERR_FILENO) != 0) {}

  void preparing(const char* what) override { progress_.show(fmt::format("{} ...", what)); }

  void noticed(const std::string& what) override {
    progress_.clear();
    say(stderr, what + "\n");
  }

  void started(const Trainer& trainer, const TrainingData& data) override {
    const Config& model = trainer.layout().config();
    const MemoryPlan& memory = trainer.memory();
    const int64_t samples = data.train->samples_per_epoch();
    progress_.clear();
    print_table(
        {{"model", fmt::format("{}, {} parameters, vocabulary {}", model.row.empty() ? model.model_type : model.row,
                               grouped_text(trainer.layout().parameter_count()), grouped_text(model.vocab_size))},
         {"data",
          fmt::format("{} sequences of {} tokens, {:.3g} epochs; {}", grouped_text(samples), config_.sequence_length,
                      static_cast<double>(config_.steps * config_.batch_size) / static_cast<double>(samples),
                      data.held_out ? fmt::format("{} held out", grouped_text(data.held_out->samples_per_epoch()))
                                    : "too few to hold out any: no evaluation (give eval_data)")},
         {"steps", fmt::format("{} of {} x {} tokens, from step {}", grouped_text(config_.steps), config_.batch_size,
                               config_.sequence_length, trainer.state().step)},
         {"memory",
          fmt::format("{} = weights {} + gradients {} + moments {} + activations {}; available {}",
                      gigabytes(memory.total()), gigabytes(memory.weights), gigabytes(memory.gradients),
                      gigabytes(memory.moments), gigabytes(memory.activations), gigabytes(available_memory()))},
         {"folder", config_.out}});
    std::fflush(stdout);
  }

  TaskScores evaluate(Trainer& trainer) override {
    return tasks_->evaluate(trainer, [&](const std::string& text) { progress_.show(text); });
  }

  void stepped(const Metrics& metrics) override { progress_.show(line(metrics)); }

  void logged(const Metrics& metrics) override {
    if (!is_live_ || metrics.val_loss || !metrics.tasks.empty()) print(line(metrics));
  }

  void saved(const fs::path& checkpoint) override { print("saved " + checkpoint.string()); }

 private:
  std::string line(const Metrics& metrics) const {
    const double tokens =
        static_cast<double>((config_.steps - metrics.step) * config_.batch_size * config_.sequence_length);
    std::string text = fmt::format("step {}/{}  loss {:.4f}  lr {:.3g}  norm {:.3g}  {:.0f} tokens/s  {} left",
                                   metrics.step, config_.steps, metrics.loss, metrics.lr, metrics.grad_norm,
                                   metrics.tokens_per_second, duration_text(tokens / metrics.tokens_per_second));
    if (metrics.bad_steps > 0) text += fmt::format("  skipped {}", metrics.bad_steps);
    if (metrics.val_loss) {
      text += fmt::format("  val_loss {:.4f}  perplexity {:.2f}", *metrics.val_loss, std::exp(*metrics.val_loss));
    }
    for (const auto& [task, score] : metrics.tasks) text += fmt::format("  {} {:.4g}", task, score);
    return text;
  }
  void print(const std::string& text) {
    progress_.clear();
    say(stdout, text + "\n");
  }

  const TrainConfig& config_;
  TrainTasks* tasks_;  // null: none
  bool is_live_;       // the line that is written over, on standard error, is seen
  Progress progress_;
};

// ---- the command

struct Settings {
  std::string file, preset, data, out;
  std::optional<int64_t> steps;
  std::optional<int64_t> seed;
  std::vector<std::string> assignments;
  bool resume = false;
};

// Later ones count: the recipe, or the config of the folder that is resumed; the file; options; --set.
TrainConfig config_of(const Settings& settings) {
  TrainConfig config;
  const fs::path before = fs::path(settings.out) / "config.toml";
  if (!settings.preset.empty()) {
    config = recipe(settings.preset);
  } else if (settings.resume && settings.file.empty() && !settings.out.empty()) {
    if (!fs::exists(before)) throw Error(fmt::format("[train] out: {} holds no run to resume", settings.out));
    read_toml_file(before, config);
    if (!config.init_from.empty()) config.model.clear(), config.model_table.clear();  // earlier versions kept both
  } else if (settings.file.empty()) {
    std::string known;
    for (const std::string& name : recipe_names()) known += (known.empty() ? "" : ", ") + name;
    throw Error("[train] expected a config file, --preset NAME (" + known + "), or --resume with --out of a run");
  }
  if (!settings.file.empty()) read_toml_file(settings.file, config);
  if (!settings.data.empty()) config.data = settings.data;
  if (!settings.out.empty()) config.out = settings.out;
  if (settings.steps) set_key(fmt::format("steps={}", *settings.steps), config);
  if (settings.seed) set_key(fmt::format("seed={}", *settings.seed), config);
  set_keys(settings.assignments, config);
  if (settings.resume && !config.init_from.empty() && !fs::exists(fs::path(config.init_from) / "config.json")) {
    // A run that goes on has the weights, and the same model: what it started from may be gone.
    if (const auto step = step_to_resume(config.out)) config.init_from = step_directory(config.out, *step).string();
  }
  return config;
}

int run(const Settings& settings) {
  const TrainConfig config = config_of(settings);
  validate(config);
  const std::unique_ptr<Communicator> processes = make_communicator();
  TrainResult result;
  try {
    if (processes->rank() == 0) check_run_folder(config, settings.resume);
    std::optional<TrainTasks> tasks;
    if (processes->rank() == 0 && !config.eval_tasks.empty()) tasks.emplace(config);
    Screen screen(config, tasks ? &*tasks : nullptr);
    if (processes->rank() == 0) screen.preparing("reading the data");
    const TrainingData data = load_training_data(config, config.model_config().vocab_size);
    catch_signals();
    result = run_training(config, data, settings.resume, screen, stop_requested, *processes);
  } catch (const std::exception& error) {
    processes->fail(error.what());  // others would wait for this one forever
    throw;
  }
  if (processes->rank() != 0) return 0;
  if (result.interrupted) {
    say(stdout, fmt::format("interrupted after step {}; go on with: deltanet train --resume --out {}\n", result.step,
                            config.out));
  } else {
    say(stdout,
        fmt::format("done after step {}{}\n", result.step,
                    std::isfinite(result.best_loss) ? fmt::format("; best val_loss {:.4f}", result.best_loss) : ""));
  }
  return 0;
}

std::function<int()> setup(const Arguments& args) {
  const auto settings = std::make_shared<Settings>();
  args.option("config", settings->file, "TOML file; keys as in configs/*.toml").existing_file();
  args.option("--preset", settings->preset, "Recipe to start from: 340m, 1b, tiny-5m, small-25m, or ROW-RECIPE");
  args.option("--data", settings->data, "Text or JSON lines (.gz, .zst too), or a folder made by `deltanet tokenize`");
  args.option("--out", settings->out, "Folder of the run");
  args.option("--steps", settings->steps, "Number of steps");
  args.option("--seed", settings->seed, "Seed of the weights and of the order of the data").not_negative();
  args.flag("--resume", settings->resume, "Go on from the last checkpoint in the folder");
  args.option("--set", settings->assignments,
              "key=value, for any key of a config; model.FIELD=value for a field of the model")
      .one_value_each();
  return [settings] { return run(*settings); };
}

const RegisterCommand kTrain({"train", "Train a language model", setup});

}  // namespace
}  // namespace deltanet::cli
