#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deltanet/tokenizer.h"
#include "eval/example.h"
#include "eval/record.h"

// The table of tasks. A task whose examples are the lines of a file is one entry: the names of the file, the fields and
// a function from a line to an example. A task that is generated, or whose file is not JSON lines, has a `load`.

namespace deltanet::eval {

// What the user says about tasks. Each task reads what concerns it.
struct TaskOptions {
  std::string data;       // folder of the files
  int64_t limit = 0;      // only the first examples of a file, or of each length of a generated task; 0: all
  std::string text = {};  // of the task "text": a file

  // Of generated tasks.
  int64_t samples = 500;  // for each length, unless the limit is less
  uint64_t seed = 0;
  std::vector<int64_t> lengths = {};  // tokens of prompt and answer; empty: those of the task
  std::vector<int64_t> pairs = {};    // numbers of pairs of MQAR; empty: those of the task
  std::string filler = "random";      // of MQAR, where nothing is asked; or "zeros"
  std::string haystack = {};          // a text file; empty: none was given
  std::string fit = "exact";          // or "harness"

  int64_t samples_of_each_length() const { return limit > 0 ? std::min(limit, samples) : samples; }
};

// What a task may depend on besides the options.
struct TaskModel {
  const Tokenizer* tokenizer = nullptr;  // null: the model reads ids, not text; only tasks of Kind::kLabelled work
  int64_t vocab_size = 0;
  bool add_special = true;

  // A prompt as the model will read it, with the tokens that the tokenizer puts around a text (BOS). What counts the
  // tokens of a prompt counts these.
  std::vector<int32_t> encode(std::string_view text) const { return tokenizer->encode(text, add_special); }
};

struct LoadedTask {
  std::vector<Example> examples;
  // What the examples are made from: files with their sizes and checksums (about_file), seed, haystack, lengths
  // reached, ... It goes into the result, and a stopped evaluation goes on only where it is the same: nothing that
  // changes from run to run belongs here.
  nlohmann::ordered_json about = nlohmann::ordered_json::object();
  // Lines for people, printed with the results and kept with them: which haystack was used, real token counts, ...
  std::vector<std::string> notes = {};
};

// Results by the values of some tags: {"length"} or {"length", "depth"}. Every combination that occurs is a cell.
using Breakdown = std::vector<std::string_view>;

struct Task {
  std::string_view name;   // as --tasks takes it
  std::string_view title;  // in the head of a table: "ARC_e"
  std::string_view group;  // tasks that share a table and an average: "commonsense", "retrieval", "s_niah", ...
  Kind kind;
  std::string_view metric;   // the one of the paper; results hold all metrics of the kind
  std::string_view summary;  // for the list of tasks
  // The column of its perplexity, in tables that begin with such; empty: none.
  std::string_view perplexity_title = {};

  // Examples from the lines of a file.
  std::vector<std::string_view> files = {};  // without .jsonl, .jsonl.gz or .jsonl.zst; the first that exists
  std::string_view fields = {};              // for the complaint that it is missing
  std::string_view source = {};              // where people get it
  Example (*make)(const Record& record) = nullptr;

  // Or from elsewhere. The same arguments give the same examples, and `load` itself heeds options.limit. A missing or
  // bad option is an Error that names it as the command does (--haystack).
  LoadedTask (*load)(const Task& task, const TaskOptions& options, const TaskModel& model) = nullptr;
  // Of what is generated: throws the Errors that `load` would for any model, before the first one works for hours.
  void (*check)(const Task& task, const TaskOptions& options) = nullptr;

  // In the result; every example has all of these tags. The cells of the first one, if it has one tag, are the columns
  // of the task in its table: {{"length"}, {"length", "depth"}} gives a column for each length.
  std::vector<Breakdown> breakdowns = {};
};

std::span<const Task> tasks();
// Names of tasks and of groups, each task once, in the order given; also separated by commas in one text.
std::vector<const Task*> chosen_tasks(std::span<const std::string> names);
std::vector<const Task*> chosen_tasks(std::string_view names);
const Task& find_task(std::string_view name);  // throws Error with the nearest name
// Throws Error where a value stands twice: its examples would count twice.
void check_distinct(std::string_view option, std::span<const int64_t> values);

// Throws Error where data are missing, with the names and fields that are expected and where people get them, and where
// they are bad, with file, line and field. Nothing is left out silently.
LoadedTask load_task(const Task& task, const TaskOptions& options, const TaskModel& model);

}  // namespace deltanet::eval
