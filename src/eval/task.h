#pragma once

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
  std::string data;    // folder of the files
  int64_t limit = 0;   // only the first examples; 0: all. Applied by load_task to what `load` returns
  std::string text;    // of the task "text": a file
  int64_t max_length = 2048;  // tokens of context and continuation, and of a window of a document

  // Of generated tasks.
  int64_t samples = 500;              // for each length
  uint64_t seed = 0;
  std::vector<int64_t> lengths = {};  // empty: those of the task
  std::vector<int64_t> pairs = {};
  std::string haystack;               // a text file
  std::string fit = "exact";          // or "harness"
};

// What a task may depend on besides the options.
struct TaskModel {
  const Tokenizer* tokenizer = nullptr;  // null: the model reads ids, not text
  int64_t vocab_size = 0;
};

struct LoadedTask {
  std::vector<Example> examples;
  // What the examples are made from, for the result: files and their checksums, seed, haystack, lengths reached, ...
  nlohmann::ordered_json about = nlohmann::ordered_json::object();
};

// Results by the values of some tags: {"length"} or {"length", "depth"}. Every combination that occurs is a cell.
using Breakdown = std::vector<std::string_view>;

struct Task {
  std::string_view name;     // as --tasks takes it
  std::string_view title;    // in the head of a table: "ARC_e"
  std::string_view group;    // tasks that share a table and an average: "commonsense", "retrieval", "s_niah", ...
  Kind kind;
  std::string_view metric;   // the one of the paper; results hold all metrics of the kind
  std::string_view summary;  // for the list of tasks

  // Examples from the lines of a file.
  std::vector<std::string_view> files = {};  // without .jsonl, .jsonl.gz or .jsonl.zst; the first that exists
  std::string_view fields = {};              // for the complaint that it is missing
  std::string_view source = {};              // where people get it
  Example (*make)(const Record& record) = nullptr;

  // Or from elsewhere.
  LoadedTask (*load)(const Task& task, const TaskOptions& options, const TaskModel& model) = nullptr;
  std::vector<Breakdown> breakdowns = {};
};

std::span<const Task> tasks();
const Task& find_task(std::string_view name);  // throws Error with the nearest name

// Throws Error where data are missing, with the names and fields that are expected and where people get them, and where
// they are bad, with file, line and field. Nothing is left out silently.
LoadedTask load_task(const Task& task, const TaskOptions& options, const TaskModel& model);

}  // namespace deltanet::eval
