// `deltanet eval`: the paper's benchmarks, and any text, for one or several checkpoints.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/stopwatch.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/eval_tables.h"
#include "cli/json_file.h"
#include "cli/live_lines.h"
#include "cli/model_options.h"
#include "cli/terminal.h"
#include "deltanet/error.h"
#include "eval/ask.h"
#include "eval/dump.h"
#include "eval/report.h"
#include "eval/task.h"
#include "model/model_impl.h"

namespace deltanet::cli {
namespace {

namespace fs = std::filesystem;
using eval::ModelReport;
using eval::Task;

struct Settings {
  std::vector<std::string> directories, tasks;
  RunOptions run;
  eval::TaskOptions options;
  std::string json, format = "text", save_examples, dump;
  int64_t batch_tokens = 4096, batch_sequences = 64;
  std::optional<int64_t> max_length, prefix_token;
  bool list = false;
};

void print_tasks() {
  std::vector<std::vector<std::string>> table = {{"task", "group", "metric", "what", "file", "fields"}};
  for (const Task& task : eval::tasks()) {
    std::string file(task.files.empty() ? "-" : std::string(task.files.front()) + ".jsonl");
    table.push_back({std::string(task.name), std::string(task.group), std::string(task.metric),
                     std::string(task.summary), file, std::string(task.fields.empty() ? "-" : task.fields)});
  }
  print_table(table);
  fmt::print(
      "\nFiles are looked for in --data, also as .jsonl.gz and .jsonl.zst. A group stands for all of its tasks.\n"
      "Where people get them:\n");
  for (const Task& task : eval::tasks()) {
    if (!task.source.empty()) fmt::print("  {:14} {}\n", task.name, task.source);
  }
}

std::vector<const Task*> tasks_of(const Settings& settings) {
  std::vector<std::string> names = settings.tasks;
  if (!settings.options.text.empty()) names.emplace_back("text");
  if (names.empty()) throw Error("[eval] expected --tasks LIST or --text FILE; `deltanet eval --list` shows the tasks");
  return eval::chosen_tasks(names);
}

// The last part of the paths, as far as that tells them apart.
std::vector<std::string> names_of(const std::vector<std::string>& directories) {
  std::vector<std::string> names;
  for (const std::string& directory : directories) {
    fs::path path = fs::weakly_canonical(fs::absolute(directory));  // "." has a name, too
    if (path.filename().empty()) path = path.parent_path();
    names.push_back(path.filename().string());
  }
  if (std::set<std::string>(names.begin(), names.end()).size() == names.size()) return names;
  return directories;
}

// Whether some layer looks at all tokens before.
bool attends_to_all(const Config& config) {
  return std::any_of(config.attention.begin(), config.attention.end(),
                     [](const AttentionConfig& attention) { return attention.window == 0; });
}

// A model with its tokenizer, and how it reads.
struct Evaluated {
  explicit Evaluated(const Settings& settings, const std::string& directory) : run(settings.run) {
    run.directory = directory;
    model.emplace(load_model(run));
    const Config& config = ModelAccess::config(*model);
    const bool has_tokenizer = !run.tokenizer.empty() || fs::exists(fs::path(directory) / "tokenizer.json") ||
                               fs::exists(fs::path(directory) / "tokenizer.model") || model->vocab_size() == 256;
    if (has_tokenizer) tokenizer = load_tokenizer_for(run, *model);
    reader = {.tokenizer = tokenizer.get(), .vocab_size = model->vocab_size(), .add_special = !run.no_special};

    ask.batch.tokens = settings.batch_tokens;
    ask.batch.sequences = settings.batch_sequences;
    ask.threads = run.threads;
    const int64_t positions = config.max_position_embeddings.value_or(0);
    ask.rules.window = positions > 1 ? positions : 2048;  // some configs say 0 or -1 where there is no limit
    // What has a state reads on for ever; what looks back at all tokens was made for so many.
    ask.rules.max_length = attends_to_all(config) ? ask.rules.window : eval::ReadingRules::kNoLimit;
    if (settings.max_length) ask.rules.max_length = ask.rules.window = *settings.max_length;
    ask.end_ids = eval::end_ids_of(config, tokenizer.get());
    ask.rules.prefix = eval::prefix_of(config, tokenizer.get());
    if (!settings.prefix_token) return;
    if (*settings.prefix_token < 0 || *settings.prefix_token >= model->vocab_size()) {
      throw Error(fmt::format("[eval] --prefix-token: given {}; expected 0 to {}, the vocabulary of {}",
                              *settings.prefix_token, model->vocab_size() - 1, directory));
    }
    ask.rules.prefix = static_cast<int32_t>(*settings.prefix_token);
  }

  nlohmann::ordered_json about() const {
    const Config& config = ModelAccess::config(*model);
    const bool is_limited = ask.rules.max_length != eval::ReadingRules::kNoLimit;
    return {{"directory", run.directory},
            {"row", config.row.empty() ? config.model_type : config.row},
            {"parameters", model->parameter_count()},
            {"fingerprint", fmt::format("{:016x}", ModelAccess::fingerprint(*model))},
            {"weights", run.weights},
            {"max_length", is_limited ? nlohmann::ordered_json(ask.rules.max_length) : nlohmann::ordered_json()},
            {"window", ask.rules.window},
            {"add_special", reader.add_special}};
  }

  RunOptions run;
  std::optional<Model> model;
  std::unique_ptr<Tokenizer> tokenizer;
  eval::TaskModel reader;
  eval::AskOptions ask;
};

// What must be the same for the results of examples to be taken over. What is asked has keys of its own.
nlohmann::ordered_json identity(const Evaluated& evaluated, const Task& task, const eval::LoadedTask& loaded) {
  nlohmann::ordered_json identity = {{"task", task.name}};
  for (const char* name : {"fingerprint", "weights", "max_length", "window", "add_special"}) {
    identity[name] = evaluated.about().at(name);
  }
  identity["about"] = loaded.about;
  return identity;
}

class Evaluation {
 public:
  explicit Evaluation(const Settings& settings)
      : settings_(settings), tasks_(tasks_of(settings)), names_(names_of(settings.directories)) {}

  int run() {
    load_files();
    for (std::size_t i = 0; i < settings_.directories.size(); ++i) {
      Evaluated evaluated(settings_, settings_.directories[i]);
      if (!settings_.dump.empty()) {
        dump(evaluated);
        return 0;
      }
      reports_.push_back(
          {.name = names_[i], .spec = ModelAccess::config(*evaluated.model).spec, .about = evaluated.about()});
      for (std::size_t k = 0; k < tasks_.size(); ++k) {
        evaluate(evaluated, *tasks_[k], fmt::format("{}  {}", names_[i], task_place(k)));
        write_json(settings_.json == "-" ? "" : settings_.json, eval::to_json(reports_));
      }
    }
    if (settings_.json == "-") {
      write_json(settings_.json, eval::to_json(reports_));
    } else {
      print_report(reports_, settings_.format);
    }
    return 0;
  }

 private:
  std::string task_place(std::size_t k) const {
    return tasks_.size() == 1 ? std::string(tasks_[k]->name)
                              : fmt::format("{} ({} of {})", tasks_[k]->name, k + 1, tasks_.size());
  }

  // Those that are the same for all models, before the first one works for hours; and what is said of the others.
  void load_files() {
    for (const Task* task : tasks_) {
      if (!task->files.empty() || task->name == "text") {
        loaded_.emplace(task, eval::load_task(*task, settings_.options, {}));
      } else if (task->check) {
        task->check(*task, settings_.options);
      }
    }
  }

  eval::LoadedTask load(const Evaluated& evaluated, const Task& task) const {
    if (!evaluated.tokenizer && task.kind != eval::Kind::kLabelled) {
      throw Error(
          fmt::format("[eval] {}: {} has neither tokenizer.json nor tokenizer.model; expected --tokenizer PATH, "
                      "or --tokenizer bytes for a model of bytes",
                      task.name, evaluated.run.directory));
    }
    const auto found = loaded_.find(&task);
    return found != loaded_.end() ? found->second : eval::load_task(task, settings_.options, evaluated.reader);
  }

  void dump(const Evaluated& evaluated) const {
    std::vector<eval::LoadedTask> loaded;
    for (const Task* task : tasks_) loaded.push_back(load(evaluated, *task));
    std::vector<eval::DumpedTask> dumped;
    std::size_t examples = 0;
    for (std::size_t k = 0; k < tasks_.size(); ++k) {
      dumped.push_back({tasks_[k], loaded[k].examples});
      examples += loaded[k].examples.size();
    }
    eval::dump_examples(dumped, settings_.dump);
    for (const eval::LoadedTask& one : loaded) {
      for (const std::string& note : one.notes) fmt::print("{}\n", note);
    }
    fmt::print("{} examples of {} tasks: {}\n", examples, tasks_.size(), settings_.dump);
  }

  void evaluate(Evaluated& evaluated, const Task& task, const std::string& title) {
    // Standard output is for the tables or the JSON alone where a program may read them.
    LiveLines lines(1, settings_.json == "-" || settings_.format != "text" ? stderr : stdout);
    lines.set(0, title + "  reading the examples");
    const eval::LoadedTask loaded = load(evaluated, task);
    std::optional<eval::SavedExamples> saved;
    if (!settings_.save_examples.empty()) {
      fs::create_directories(settings_.save_examples);
      std::string name = reports_.back().name;
      std::replace(name.begin(), name.end(), '/', '-');
      saved.emplace(fs::path(settings_.save_examples) / fmt::format("{}.{}.jsonl", name, task.name),
                    identity(evaluated, task, loaded));
    }
    const Stopwatch clock;
    eval::TaskResult result = eval::ask(
        *evaluated.model, task, loaded, evaluated.reader, evaluated.ask, saved ? &*saved : nullptr,
        [&](const eval::AskProgress& progress) {
          const auto tokens = static_cast<double>(progress.tokens), all = static_cast<double>(progress.all_tokens);
          lines.set(0, fmt::format("{}  {}/{} examples  {}/{} tokens  {} tokens/s  {}", title, progress.examples,
                                   progress.all_examples, count_text(tokens), count_text(all),
                                   count_text(tokens / clock.seconds()), left_text(clock.seconds(), tokens / all)));
        });
    const eval::Estimate value = eval::estimate(eval::find_metric(task.kind, task.metric), result.examples);
    std::string line =
        fmt::format("{}  {} {}", title, task.metric, estimate_text(eval::find_metric(task.kind, task.metric), value));
    if (result.resumed > 0) line += fmt::format("  ({} examples were done before)", result.resumed);
    lines.say(line + "  " + duration_text(result.seconds));
    reports_.back().tasks.emplace_back(&task, std::move(result));
  }

  const Settings& settings_;
  std::vector<const Task*> tasks_;
  std::vector<std::string> names_;
  std::map<const Task*, eval::LoadedTask> loaded_;
  std::vector<ModelReport> reports_;
};

int run(const Settings& settings) {
  if (settings.list) {
    print_tasks();
    return 0;
  }
  if (settings.directories.empty()) throw Error("[eval] expected the directory of a checkpoint, or --list");
  check_writable(settings.json);
  return Evaluation(settings).run();
}

std::function<int()> setup(const Arguments& args) {
  const auto settings = std::make_shared<Settings>();
  eval::TaskOptions& options = settings->options;
  RunOptions& run_options = settings->run;
  const auto list = [&](const char* name, auto& values, const char* text) {
    args.option(name, values, text).comma_separated().one_value_each();
  };
  args.option("directories", settings->directories,
              "Checkpoints: config.json, model.safetensors, tokenizer. Several make one table");
  list("--tasks", settings->tasks, "Tasks or groups of them, separated by commas: arc_easy, commonsense, s_niah ...");
  args.flag("--list", settings->list, "Show the tasks, their files with their fields, and where people get them");
  args.option("--data", options.data, "Folder with the files of the tasks: .jsonl, .jsonl.gz or .jsonl.zst");
  args.option("--text", options.text, "Also evaluate this text: loss, bits per byte, perplexity by position");
  args.option("--limit", options.limit,
              "Only the first examples of each task (of each length, where they have lengths)")
      .not_negative();

  args.option("--json", settings->json, "Write the results to this file, renewed after each task (- for the screen)");
  args.option("--format", settings->format, "Of the tables")
      .one_of({"text", "markdown", "latex", "json"})
      .show_default();
  args.option("--save-examples", settings->save_examples,
              "Folder for the result of every example; an evaluation that was stopped goes on from it");
  args.option("--dump", settings->dump, "Only write what the first model would be asked to this file, as JSON lines");

  args.option("--weights", run_options.weights, "Type of the matrices: f32, bf16 or int8").show_default();
  args.option(
      "--tokenizer", run_options.tokenizer,
      "tokenizer.json, tokenizer.model, a directory with one of them, or \"bytes\" (default: the checkpoint's)");
  args.flag("--no-special", run_options.no_special,
            "Do not add the tokens that the tokenizer puts before a text (BOS), as lm-eval before 0.4.9.2");
  args.option("--prefix-token", settings->prefix_token,
              "Id of the token before a text without context (default: BOS, or EOS)");
  args.option(
          "--max-length", settings->max_length,
          "Tokens of context and continuation, of which a longer context loses its beginning, and of the windows in "
          "which texts are read (default: max_position_embeddings or 2048; contexts of recurrent models are not cut)")
      .between<int64_t>(2, int64_t{1} << 40);
  args.option("--batch-tokens", settings->batch_tokens,
              "Tokens that go through the model at once; memory grows with it")
      .between<int64_t>(1, int64_t{1} << 24)
      .show_default();
  args.option("--batch-sequences", settings->batch_sequences, "Answers that are said side by side, at most")
      .between<int64_t>(1, int64_t{1} << 20)
      .show_default();
  args.option("--threads", run_options.threads, "Threads (default: one per core)").not_negative();

  args.option("--samples", options.samples, "Generated tasks: examples of each length").positive().show_default();
  args.option("--seed", options.seed, "Generated tasks: seed").show_default();
  list("--lengths", options.lengths, "Generated tasks: lengths in tokens (S-NIAH: 512,1024,2048,4096,8192)");
  list("--pairs", options.pairs, "mqar: numbers of pairs");
  args.option("--filler", options.filler, "mqar: between the queries, random tokens or zeros")
      .one_of({"random", "zeros"})
      .show_default();
  args.option("--haystack", options.haystack, "s_niah_2, s_niah_3: running prose in which the needle is hidden");
  args.option("--fit", options.fit, "s_niah: the longest text that fits, or the harness's steps of 500 words")
      .one_of({"exact", "harness"})
      .show_default();
  args.footer(
      "Examples:\n"
      "  deltanet eval checkpoints/gdn checkpoints/pgdn --tasks commonsense --data data --json results.json\n"
      "  deltanet eval checkpoints/pgdn --tasks s_niah --haystack essays.txt --lengths 1024,2048 --samples 100\n"
      "  deltanet eval checkpoints/pgdn --text book.txt --max-length 8192\n"
      "docs/evaluation.md tells what is asked, how it is scored and how it compares to lm-evaluation-harness.");
  return [settings] { return run(*settings); };
}

const RegisterCommand kEval({"eval", "Evaluate models: the paper's benchmarks, any text", setup});

}  // namespace
}  // namespace deltanet::cli
