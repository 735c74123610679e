// `deltanet quickstart`: GDN against PGDN on associative recall in two minutes, then a model of the project's own docs.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>

#include "base/file.h"
#include "base/parallel.h"
#include "cli/command.h"
#include "cli/live_lines.h"
#include "cli/mqar_tables.h"
#include "cli/pictures.h"
#include "cli/quickstart/regression.h"
#include "cli/quickstart/text.h"
#include "cli/terminal.h"
#include "deltanet/error.h"

namespace deltanet::cli {
namespace {

namespace fs = std::filesystem;

struct Settings {
  double seconds = 120, text_seconds = 30;
  std::vector<std::string> texts;  // empty: the docs of the project
  std::string out = "quickstart";
  bool no_plot = false;
};

constexpr std::array kRows = {"gdn", "pgdn"};

MqarRun recall_run(const std::string& row, int64_t steps) {
  MqarRun run = quick_mqar_run(steps);
  run.row = row;
  run.validations = std::clamp<int64_t>(steps / 50, 2, 20);
  return run;
}

// Both models at once, as they will run; the slower one decides how many steps fit into the time.
int64_t steps_in(double seconds) {
  std::array<double, kRows.size()> step_seconds{};
  parallel_for(static_cast<int>(kRows.size()), kRows.size(), [&](int64_t i) {
    constexpr int64_t kTrial = 60;  // the first ones are slower
    MqarRun run = recall_run(kRows[i], kTrial);
    run.validations = 1;
    run.stop_accuracy = 2;
    const MqarResult result = run_mqar(run);
    step_seconds[i] = result.train_seconds / static_cast<double>(result.steps);
  });
  constexpr double kTraining = 0.9;  // the rest is validation
  const double slowest = *std::max_element(step_seconds.begin(), step_seconds.end());
  return std::max<int64_t>(20, static_cast<int64_t>(kTraining * seconds / slowest));
}

void compare_on_recall(const Settings& settings) {
  // Not results.jsonl: that holds what `deltanet mqar` took hours for, and this file starts anew every time.
  const fs::path path = fs::path(settings.out) / "recall.jsonl";
  fs::remove(path);
  const int64_t steps = steps_in(settings.seconds);
  fmt::print("{}: recall of 8 to 60 pairs of tokens (MQAR), {} steps for each model, one core each\n",
             bold("GDN and PGDN side by side"), steps);
  std::array<MqarRecord, kRows.size()> records;
  {
    LiveLines lines(kRows.size());
    parallel_for(static_cast<int>(kRows.size()), kRows.size(), [&](int64_t i) {
      const MqarRun run = recall_run(kRows[i], steps);
      records[i] = {run, run_mqar(run, [&](const MqarProgress& progress) {
                      const std::string text = progress_text(run, progress);
                      lines.set(static_cast<std::size_t>(i), text);
                      if (progress.validated && !lines.live()) lines.say(text);
                    })};
    });
  }
  MqarResults results(path);
  for (const MqarRecord& record : records) results.add(record);
  const std::vector<MqarBest> best = best_runs(results.records());
  print_best(best);
  print_tests(best);
  fmt::print("Curves: {}\n", path.string());
  if (!settings.no_plot) draw("recall", path);
}

// README.md and docs/*.md of the project that this program was built in.
std::vector<fs::path> project_docs() {
  std::vector<fs::path> files;
  std::error_code ignored;
  fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (int up = 0; up < 4 && !folder.empty(); ++up, folder = folder.parent_path()) {
    if (!fs::exists(folder / "README.md", ignored) || !fs::is_directory(folder / "docs", ignored)) continue;
    files.push_back(folder / "README.md");
    for (const auto& entry : fs::directory_iterator(folder / "docs")) {
      if (entry.path().extension() == ".md") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
  }
  return files;
}

void train_on_docs(const Settings& settings) {
  constexpr int64_t kLargest = int64_t{1} << 30;
  std::vector<fs::path> files(settings.texts.begin(), settings.texts.end());
  if (files.empty()) files = project_docs();
  if (files.empty()) {
    fmt::print("The docs of the project are not beside this program; give a text with --text FILE.\n");
    return;
  }
  TextOptions options;
  for (const fs::path& file : files) options.text += read_file(file, kLargest) + "\n";
  options.seconds = settings.text_seconds;
  fmt::print("\n{}: {} bytes of {} files\n", bold("A byte-level PGDN on text"), options.text.size(), files.size());
  train_on_text(options);
}

int run(const Settings& settings) {
  fs::create_directories(settings.out);
  const fs::path regression = fs::path(settings.out) / "regression.jsonl";
  show_regression(regression);
  if (!settings.no_plot) draw("regression", regression);
  compare_on_recall(settings);
  train_on_docs(settings);
  return 0;
}

std::function<int()> setup(const Arguments& args) {
  const auto settings = std::make_shared<Settings>();
  args.option("--seconds", settings->seconds, "Training of GDN and PGDN, about").positive().show_default();
  args.option("--text-seconds", settings->text_seconds, "Training on text").positive().show_default();
  args.option("--text", settings->texts, "Files to train on instead of the project's docs").existing_file();
  args.option("--out", settings->out, "Folder of recall.jsonl, which is written anew, and its picture").show_default();
  args.flag("--no-plot", settings->no_plot, "No picture");
  return [settings] { return run(*settings); };
}

const RegisterCommand kQuickstart({"quickstart", "See it learn: GDN against PGDN, then a model of text", setup});

}  // namespace
}  // namespace deltanet::cli
