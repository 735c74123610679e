// `deltanet mqar`: models x tasks x learning rates x seeds, a run on each core; goes on where it stopped.

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "base/text.h"
#include "cli/command.h"
#include "cli/live_lines.h"
#include "cli/mqar_tables.h"
#include "cli/pictures.h"
#include "cli/terminal.h"
#include "deltanet/error.h"
#include "deltanet/runtime.h"
#include "experiments/mqar_sweep.h"

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

template <class T>
void override_with(const T& given, T& value) {
  if (given != T{}) value = given;
}

MqarSweep sweep_of(const Settings& settings) {
  MqarSweep sweep = settings.preset == "paper" ? paper_mqar_sweep() : quick_mqar_sweep();
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

void print_plan(const std::vector<MqarRun>& runs) {
  std::vector<std::vector<std::string>> table = {
      {"model", "d_model", "lr", "seed", "epochs", "steps", "tokens", "trained on"}};
  double tokens = 0;
  for (const MqarRun& run : runs) {
    table.push_back({run.row, std::to_string(run.d_model), fmt::format("{:.3g}", run.lr), std::to_string(run.seed),
                     std::to_string(run.epochs), std::to_string(mqar_steps(run)), count_text(mqar_tokens(run)),
                     parts_text(run.train)});
    tokens += mqar_tokens(run);
  }
  print_table(table, {1, 2, 3, 4, 5, 6});
  fmt::print("{} runs, at most {} tokens of training\n", runs.size(), count_text(tokens));
}

void run_all(const std::vector<MqarRun>& runs, int threads, MqarResults& results) {
  LiveLines lines(static_cast<std::size_t>(threads) + 1);  // one for all, and one for each thread
  std::size_t finished = 0;
  MqarObserver observer;
  observer.progress = [&](int worker, const MqarRun& run, const MqarProgress& progress) {
    lines.set(worker + 1, progress_text(run, progress));
  };
  observer.finished = [&](int worker, const MqarRecord& record, double done, double seconds) {
    const auto& [run, result] = record;
    lines.set(worker + 1, "");
    lines.say(fmt::format("{:9} d {} lr {:<8.3g} seed {}  accuracy {:5.1f}%  steps {}  {}{}", run.row, run.d_model,
                          run.lr, run.seed, 100 * result.accuracy, result.steps, duration_text(result.seconds),
                          result.end == MqarEnd::kDiverged ? "  diverged" : ""));
    lines.set(0, fmt::format("{} of {} runs, about {}", ++finished, runs.size(), left_text(seconds, done)));
  };
  run_mqar_sweep(runs, threads, results, observer);
}

int run(const Settings& settings) {
  const std::vector<MqarRun> all = mqar_runs(sweep_of(settings));
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
  wanted.reserve(all.size());
  for (const MqarRun& one : all) wanted.push_back(*results.find(one));
  const std::vector<MqarBest> best = best_runs(wanted);
  fmt::print("\n");
  print_best(best);
  print_tests(best);
  print_cuts(best);
  fmt::print("\nAll runs: {}\n", path.string());
  if (!settings.no_plot) draw("mqar", path);
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
