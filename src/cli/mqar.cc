// `deltanet mqar`: models x tasks x learning rates x seeds, a run on each core; goes on where it stopped.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>

#include "base/parallel.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/live_lines.h"
#include "cli/mqar_tables.h"
#include "cli/terminal.h"
#include "deltanet/error.h"
#include "deltanet/rows.h"

namespace deltanet::cli {
namespace {

struct Settings {
  std::string preset = "quick", out = "mqar";
  std::vector<std::string> models;
  std::vector<int64_t> lengths, pairs, d_models;
  std::vector<double> lrs;
  std::vector<uint64_t> seeds;
  int64_t epochs = 0, examples = 0, batch = 0, vocab = 0;  // 0: as the preset
  std::string filler;
  int threads = 0;
  bool dry_run = false, no_plot = false;
};

struct Sweep {
  std::vector<std::string> models;
  std::vector<int64_t> lengths, pairs;  // empty: the paper's mix
  std::vector<int64_t> d_models;
  std::vector<double> lrs;
  std::vector<uint64_t> seeds;
  int64_t examples = 0;  // of each task in an epoch, for tasks that are trained one by one
  MqarRun base;
};

// Tasks of the cuts that are not among the paper's tests, to be read at the end of a run.
std::vector<MqarPart> cut_tests() {
  std::vector<MqarPart> parts;
  const std::vector<MqarPart> tests = mqar_tests();
  for (const MqarCut& cut : mqar_cuts()) {
    for (const MqarTask& task : cut.tasks) {
      const MqarPart part{task, tests.front().examples};
      const bool known = std::find(tests.begin(), tests.end(), part) != tests.end() ||
                         std::find(parts.begin(), parts.end(), part) != parts.end();
      if (!known) parts.push_back(part);
    }
  }
  return parts;
}

Sweep paper_sweep() {
  Sweep sweep;
  sweep.models = {"dn", "pdn", "gdn", "pgdn"};
  sweep.d_models = {64, 128, 256};
  sweep.lrs = {1e-3, 3.16e-3, 1e-2, 3.16e-2};
  sweep.seeds = {0};
  sweep.examples = 100000;
  sweep.base.more_tests = cut_tests();
  return sweep;
}

Sweep quick_sweep() {
  constexpr int64_t kSteps = 3000;
  Sweep sweep;
  sweep.models = {"dn", "pdn", "gdn", "pgdn"};
  // Seeds differ by ten points, so the time goes into many of them instead of into learning rates. With this one and so
  // many steps no run stayed without recall; with 1e-2 and fewer steps some did.
  sweep.d_models = {32};
  sweep.lrs = {5e-3};
  sweep.seeds = {0, 1, 2, 3, 4, 5};
  sweep.examples = 32000;
  sweep.base = quick_mqar_run(kSteps);
  return sweep;
}

template <class T>
void override_with(const T& given, T& value) {
  if (given != T{}) value = given;
}

Sweep sweep_of(const Settings& settings) {
  Sweep sweep = settings.preset == "paper" ? paper_sweep() : quick_sweep();
  override_with(settings.models, sweep.models);
  override_with(settings.d_models, sweep.d_models);
  override_with(settings.lrs, sweep.lrs);
  override_with(settings.seeds, sweep.seeds);
  override_with(settings.epochs, sweep.base.epochs);
  override_with(settings.batch, sweep.base.batch);
  override_with(settings.vocab, sweep.base.options.vocab_size);
  override_with(settings.examples, sweep.examples);
  if (!settings.filler.empty()) {
    sweep.base.options.filler = settings.filler == "zeros" ? MqarFiller::kZeros : MqarFiller::kRandom;
  }
  override_with(settings.lengths, sweep.lengths);
  override_with(settings.pairs, sweep.pairs);
  if (sweep.lengths.empty() != sweep.pairs.empty()) throw Error("[mqar] expected both --lengths and --pairs, or none");
  return sweep;
}

// Runs with everything but row, size, learning rate and seed set: one for the mix, or one for each length and number of
// pairs that fit together.
std::vector<MqarRun> tasks_of(const Sweep& sweep) {
  std::vector<MqarRun> runs;
  if (sweep.lengths.empty()) runs.push_back(sweep.base);
  for (const int64_t length : sweep.lengths) {
    for (const int64_t pairs : sweep.pairs) {
      const MqarTask task{length, pairs};
      if (length < 4 * pairs) continue;
      validate(sweep.base.options, task);
      MqarRun run = sweep.base;
      run.train = {{task, sweep.examples}};
      run.tests = {{task, std::min<int64_t>(1000, std::max<int64_t>(1, sweep.examples / 100))}};
      run.more_tests.clear();
      runs.push_back(run);
    }
  }
  if (runs.empty()) throw Error("[mqar] no length is four times a number of pairs or more; nothing to run");
  return runs;
}

// Seeds outermost, so that a sweep that is stopped early has compared all models. A run that is asked for twice, also
// by two names of one row, is one run: otherwise it would count as two seeds.
std::vector<MqarRun> runs_of(const Sweep& sweep) {
  std::vector<MqarRun> runs;
  std::set<std::string> keys;
  for (const uint64_t seed : sweep.seeds) {
    for (const MqarRun& task : tasks_of(sweep)) {
      for (const int64_t d_model : sweep.d_models) {
        for (const double lr : sweep.lrs) {
          for (const std::string& model : sweep.models) {
            MqarRun run = task;
            run.row = find_row(model).name;
            run.d_model = d_model;
            run.lr = lr;
            run.seed = seed;
            mqar_config(run);  // throws now what would be wrong later
            if (keys.insert(mqar_key(run)).second) runs.push_back(run);
          }
        }
      }
    }
  }
  return runs;
}

// Of the whole training; a run that reaches its accuracy early takes fewer.
double tokens_of(const MqarRun& run) {
  double tokens = 0;
  for (const MqarPart& part : run.train) {
    tokens += static_cast<double>(part.examples) * static_cast<double>(part.task.length);
  }
  return tokens * static_cast<double>(run.epochs);
}

double work_of(const MqarRun& run) { return tokens_of(run) * static_cast<double>(run.d_model); }

void print_plan(const std::vector<MqarRun>& runs) {
  std::vector<std::vector<std::string>> table = {
      {"model", "d_model", "lr", "seed", "epochs", "steps", "tokens", "trained on"}};
  double tokens = 0;
  for (const MqarRun& run : runs) {
    table.push_back({run.row, std::to_string(run.d_model), fmt::format("{:.3g}", run.lr), std::to_string(run.seed),
                     std::to_string(run.epochs), std::to_string(mqar_steps(run)), count_text(tokens_of(run)),
                     parts_text(run.train)});
    tokens += tokens_of(run);
  }
  print_table(table, {1, 2, 3, 4, 5, 6});
  fmt::print("{} runs, at most {} tokens of training\n", runs.size(), count_text(tokens));
}

// Gives each thread a line of its own on the screen.
class Display {
 public:
  Display(std::size_t threads, const std::vector<MqarRun>& runs) : busy_(threads), lines_(threads + 1) {
    for (const MqarRun& run : runs) work_ += work_of(run);
    total_ = runs.size();
  }

  std::size_t begin() {
    const std::lock_guard lock(mutex_);
    const auto free = std::find(busy_.begin(), busy_.end(), false);
    *free = true;
    return static_cast<std::size_t>(free - busy_.begin());
  }

  void show(std::size_t line, const MqarRun& run, const MqarProgress& progress) {
    lines_.set(line + 1, progress_text(run, progress));
  }

  void end(std::size_t line, const MqarRecord& record) {
    const std::lock_guard lock(mutex_);
    busy_[line] = false;
    lines_.set(line + 1, "");
    ++finished_;
    done_ += work_of(record.run);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const std::string left = duration_text(seconds * (work_ - done_) / done_);
    const MqarRun& run = record.run;
    lines_.say(fmt::format("{:9} d {} lr {:<8.3g} seed {}  accuracy {:5.1f}%  steps {}  {}{}", run.row, run.d_model,
                           run.lr, run.seed, 100 * record.result.accuracy, record.result.steps,
                           duration_text(record.result.seconds),
                           record.result.end == MqarEnd::kDiverged ? "  diverged" : ""));
    lines_.set(0, fmt::format("{} of {} runs, about {} left", finished_, total_, left));
  }

 private:
  std::mutex mutex_;
  std::vector<bool> busy_;
  std::size_t finished_ = 0, total_ = 0;
  double work_ = 0, done_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  LiveLines lines_;
};

void run_all(const std::vector<MqarRun>& runs, int threads, MqarResults& results) {
  std::mutex mutex;
  Display display(static_cast<std::size_t>(threads), runs);
  parallel_for(threads, static_cast<int64_t>(runs.size()), [&](int64_t i) {
    const ThreadLimit one(1);  // inside a run; the other cores have runs of their own
    const MqarRun& run = runs[i];
    const std::size_t line = display.begin();
    const MqarRecord record{run, run_mqar(run, [&](const MqarProgress& p) { display.show(line, run, p); })};
    display.end(line, record);
    const std::lock_guard lock(mutex);
    results.add(record);
  });
}

int run(const Settings& settings) {
  const std::vector<MqarRun> all = runs_of(sweep_of(settings));
  if (settings.dry_run) {
    print_plan(all);
    return 0;
  }
  std::filesystem::create_directories(settings.out);
  const std::filesystem::path path = std::filesystem::path(settings.out) / "results.jsonl";
  MqarResults results(path);
  std::vector<MqarRun> missing;
  for (const MqarRun& one : all) {
    if (!results.find(one)) missing.push_back(one);
  }
  const int threads = settings.threads > 0 ? settings.threads : default_threads();
  fmt::print("{} runs, {} of them in {} already; {} at a time\n", all.size(), all.size() - missing.size(),
             path.string(), threads);
  if (!missing.empty()) run_all(missing, threads, results);

  std::vector<MqarRecord> wanted;  // the file may hold runs of other sweeps
  for (const MqarRun& one : all) wanted.push_back(*results.find(one));
  const std::vector<MqarBest> best = best_runs(wanted);
  fmt::print("\n");
  print_best(best);
  print_tests(best);
  print_cuts(best);
  fmt::print("\nAll runs: {}\n", path.string());
  if (!settings.no_plot) draw_results(path.string());
  return 0;
}

std::function<int()> setup(const Arguments& args) {
  const auto settings = std::make_shared<Settings>();
  const auto list = [&](const char* name, auto& values, const char* text) {
    args.option(name, values, text).comma_separated();
  };
  args.option("--preset", settings->preset,
              "quick: minutes on two cores; paper: the full grid (options below change it)")
      .one_of({"quick", "paper"})
      .show_default();
  list("--models", settings->models, "Rows of the table (default: dn,pdn,gdn,pgdn)");
  list("--lengths", settings->lengths, "Train a model for each length and number of pairs instead of the paper's mix");
  list("--pairs", settings->pairs, "Numbers of pairs, with --lengths; four tokens each at least");
  list("--d-model", settings->d_models, "Widths of the model; two heads share each");
  list("--lrs", settings->lrs, "Peak learning rates; the best is picked for each model");
  list("--seeds", settings->seeds, "Seeds of weights and examples");
  args.option("--epochs", settings->epochs, "Passes over the examples").positive();
  args.option("--examples", settings->examples, "Examples in an epoch, with --lengths").positive();
  args.option("--batch", settings->batch, "Examples in a step").positive();
  args.option("--vocab", settings->vocab, "Tokens of the vocabulary").positive();
  args.option("--filler", settings->filler, "Between the queries: random tokens or zeros").one_of({"random", "zeros"});
  args.option("--out", settings->out, "Folder of results.jsonl; runs that it holds are not run again").show_default();
  args.option("--threads", settings->threads, "Runs at a time (default: one per core)").not_negative();
  args.flag("--dry-run", settings->dry_run, "Only list the runs and their tokens");
  args.flag("--no-plot", settings->no_plot, "No picture at the end");
  return [settings] { return run(*settings); };
}

const RegisterCommand kMqar({"mqar", "Train small models on associative recall (MQAR) and compare them", setup});

}  // namespace
}  // namespace deltanet::cli
