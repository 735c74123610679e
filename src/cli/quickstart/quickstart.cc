// `deltanet quickstart`: what preconditioning does, in a second; what it does for recall, in two minutes; a model of
// the project's own docs, in half a minute.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/file.h"
#include "cli/command.h"
#include "cli/pictures.h"
#include "cli/quickstart/recall.h"
#include "cli/quickstart/regression.h"
#include "cli/quickstart/text.h"
#include "cli/terminal.h"
#include "deltanet/error.h"
#include "experiments/text_model.h"

namespace deltanet::cli {
namespace {

namespace fs = std::filesystem;

struct Settings {
  int64_t seeds = 36, steps = 5000, text_steps = 1000;
  std::vector<std::string> texts;  // empty: the docs of the project
  std::string out = "quickstart";
  bool no_plot = false;
};

// The project that this program was built in, where its docs are; empty: none.
fs::path project_folder() {
  std::error_code ignored;
  fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (int up = 0; up < 4 && !folder.empty(); ++up, folder = folder.parent_path()) {
    if (fs::exists(folder / "README.md", ignored) && fs::is_directory(folder / "docs", ignored)) return folder;
  }
  return {};
}

std::string text_of(const Settings& settings) {
  constexpr int64_t kLargest = int64_t{1} << 24;  // the tokenizer is made from all of it
  std::string text;
  for (const std::string& file : settings.texts) text += read_file(file, kLargest) + "\n";
  const fs::path project = project_folder();
  if (!settings.texts.empty() || project.empty()) return text;
  std::vector<fs::path> files = {project / "README.md", project / "CONTRIBUTING.md",
                                 project / "src" / "recurrence" / "README.md"};
  for (const auto& entry : fs::directory_iterator(project / "docs")) {
    if (entry.path().extension() == ".md") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    if (fs::exists(file)) text += prose_of(read_file(file, kLargest)) + "\n";
  }
  return text;
}

// This program as it is called from here.
std::string program_name() {
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  const std::string here = program.lexically_relative(fs::current_path(ignored)).string();
  return here.empty() || here.starts_with("..") || !fs::exists(program, ignored) ? "deltanet" : here;
}

void print_next(const std::string& checkpoint) {
  const std::string program = program_name();
  fmt::print(
      "{}\n"
      "  This model again, a checkpoint like any other:\n"
      "    {} generate {} -p \"The\" -n 100 -t 0.4\n"
      "  Your own text, minutes on a laptop:\n"
      "    {} train --preset tiny-5m --data YOUR.txt --out runs/mine\n"
      "  DeltaNet, PDN, GDN and PGDN, six seeds of each:\n"
      "    {} mqar\n"
      "  In Python (.venv/bin/python): a checkpoint, this one or flash-linear-attention's; an operator for PyTorch\n"
      "    model = deltanet.Model(\"{}\")\n"
      "    from deltanet.ops import chunk_precond_gated_delta_rule\n"
      "README.md goes on from here.\n",
      bold("What next"), program, checkpoint, program, program, checkpoint);
}

int run(const Settings& settings) {
  const fs::path out = settings.out;
  fs::create_directories(out);
  const std::string text = text_of(settings);  // a file that cannot be read should not cost two minutes
  show_regression(out / "regression.jsonl");
  if (!settings.no_plot) draw("regression", out / "regression.jsonl");

  // Not results.jsonl: that holds what `deltanet mqar` took hours for, and this file starts anew every time.
  show_recall(settings.seeds, settings.steps, out / "recall.jsonl");
  if (!settings.no_plot) draw("recall", out / "recall.jsonl");

  if (text.empty()) {
    fmt::print("\nThe docs of the project are not beside this program; give a text with --text FILE.\n");
    return 0;
  }
  show_text_model(text, settings.text_steps, out / "text");
  print_next((out / "text").string());
  return 0;
}

std::function<int()> setup(const Arguments& args) {
  const auto settings = std::make_shared<Settings>();
  args.option("--seeds", settings->seeds, "Pairs of runs on recall").positive().show_default();
  args.option("--steps", settings->steps, "Steps of each of them").positive().show_default();
  args.option("--text-steps", settings->text_steps, "Steps of training on text").positive().show_default();
  args.option("--text", settings->texts, "Files to train on instead of the project's docs").existing_file();
  args.option("--out", settings->out, "Folder of the results, which are written anew, and their pictures")
      .show_default();
  args.flag("--no-plot", settings->no_plot, "No pictures");
  return [settings] { return run(*settings); };
}

const RegisterCommand kQuickstart({"quickstart", "See what preconditioning does, and when; then a model of text",
                                   setup});

}  // namespace
}  // namespace deltanet::cli
