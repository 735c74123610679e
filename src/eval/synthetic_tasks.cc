// What models are asked that were trained on it: associative recall (MQAR) and state tracking. Their examples are ids,
// and no tokenizer is needed.

#include <algorithm>
#include <string>

#include "base/text.h"
#include "data/synthetic/mqar.h"
#include "data/synthetic/state_tracking.h"
#include "deltanet/error.h"
#include "eval/task_tables.h"

namespace deltanet::eval {
namespace {

void check_vocabulary(const Task& task, const TaskModel& model, int64_t needed, const std::string& ids) {
  if (model.vocab_size >= needed) return;
  throw Error("[eval] " + std::string(task.name) + ": given a model of " + std::to_string(model.vocab_size) +
              " ids; expected at least " + std::to_string(needed) + ": " + ids);
}

// ---- associative recall

MqarFiller filler_of(const std::string& name) {
  if (name == "random") return MqarFiller::kRandom;
  if (name == "zeros") return MqarFiller::kZeros;
  throw Error("[eval] --filler: given \"" + name + "\"; expected random or zeros");
}

// Every length with every number of pairs that it has room for.
std::vector<MqarTask> recall_tasks(const TaskOptions& options, std::vector<std::string>& notes) {
  std::vector<MqarTask> tasks;
  if (options.lengths.empty() && options.pairs.empty()) {
    for (const MqarPart& part : mqar_tests()) tasks.push_back(part.task);
    return tasks;
  }
  if (options.lengths.empty() || options.pairs.empty()) {
    throw Error("[eval] mqar: given " +
                std::string(options.pairs.empty() ? "--lengths without --pairs" : "--pairs without --lengths") +
                "; expected both, or none");
  }
  check_distinct("--lengths", options.lengths);
  check_distinct("--pairs", options.pairs);
  for (const int64_t length : options.lengths) {
    for (const int64_t pairs : options.pairs) {
      if (length >= 4 * pairs) {
        tasks.push_back({length, pairs});
      } else {
        notes.push_back("mqar: left out, " + grouped_text(length) + " tokens have no room for " + grouped_text(pairs) +
                        " pairs: each takes 4");
      }
    }
  }
  if (tasks.empty()) throw Error("[eval] " + notes.front());
  return tasks;
}

void check_recall(const Task& /*task*/, const TaskOptions& options) {
  filler_of(options.filler);
  std::vector<std::string> notes;
  for (const MqarTask& task : recall_tasks(options, notes)) validate({.vocab_size = 2 * (task.pairs + 1)}, task);
}

LoadedTask load_recall(const Task& task, const TaskOptions& options, const TaskModel& model) {
  const MqarOptions data_options{.vocab_size = model.vocab_size, .filler = filler_of(options.filler)};
  const std::string ids = "0 is nothing; keys are 1 to V/2-1, values V/2 to V-1, where V is the model's vocabulary";
  LoadedTask loaded;
  std::vector<MqarPart> parts;
  for (const MqarTask& one : recall_tasks(options, loaded.notes)) {
    check_vocabulary(task, model, 2 * (one.pairs + 1), "keys are half of it without id 0");
    parts.push_back({one, options.samples_of_each_length()});
  }
  const MqarData data(data_options, parts, options.seed, MqarSplit::kTest);
  MqarBatch batch;
  int64_t first = 0;
  for (const MqarPart& part : parts) {
    for (int64_t i = 0; i < part.examples; ++i) {
      data.read(first + i, 1, batch);
      loaded.examples.push_back(
          {Labelled{.ids = batch.ids,
                    .targets = batch.targets,
                    .chance = 1 / static_cast<double>(model.vocab_size - model.vocab_size / 2)},
           {{"length", static_cast<double>(part.task.length)}, {"pairs", static_cast<double>(part.task.pairs)}}});
    }
    first += part.examples;
  }
  loaded.about = {{"seed", options.seed},           {"samples", options.samples_of_each_length()},
                  {"filler", options.filler},       {"power", data_options.power},
                  {"vocab_size", model.vocab_size}, {"ids", ids}};
  return loaded;
}

// ---- state tracking

const StateTask& state_task(const Task& task) {
  return *std::find_if(state_tasks().begin(), state_tasks().end(),
                       [&](const StateTask& s) { return s.name == task.name; });
}

std::vector<int64_t> lengths_of(const TaskOptions& options) {
  return options.lengths.empty() ? std::vector<int64_t>{40, 64, 128, 256, 512} : options.lengths;
}

void check_tracking(const Task& task, const TaskOptions& options) {
  for (const int64_t length : lengths_of(options)) validate(state_task(task), length);
  check_distinct("--lengths", lengths_of(options));
}

LoadedTask load_tracking(const Task& task, const TaskOptions& options, const TaskModel& model) {
  const StateTask& state = state_task(task);
  check_vocabulary(task, model, state.vocab_size, std::string(state.ids));
  const std::vector<int64_t> lengths = lengths_of(options);
  LoadedTask loaded;
  for (const int64_t length : lengths) {
    for (int64_t i = 0; i < options.samples_of_each_length(); ++i) {
      LabelledExample example = draw_state_example(state, length, options.seed, i);
      loaded.examples.push_back({Labelled{.ids = std::move(example.ids),
                                          .targets = std::move(example.targets),
                                          .chance = 1 / static_cast<double>(state.chances)},
                                 {{"length", static_cast<double>(length)}}});
    }
  }
  loaded.about = {{"seed", options.seed},
                  {"samples", options.samples_of_each_length()},
                  {"lengths", lengths},
                  {"chance", "1/" + std::to_string(state.chances)},
                  {"ids", state.ids}};
  return loaded;
}

}  // namespace

std::vector<Task> synthetic_tasks() {
  std::vector<Task> tasks = {{.name = "mqar",
                              .title = "MQAR",
                              .group = "mqar",
                              .kind = Kind::kLabelled,
                              .metric = "acc",
                              .summary = "associative recall, for a model that was trained on it",
                              .load = load_recall,
                              .check = check_recall,
                              .breakdowns = {{"length", "pairs"}}}};
  for (const StateTask& state : state_tasks()) {
    tasks.push_back({.name = state.name,
                     .title = state.name,
                     .group = "state_tracking",
                     .kind = Kind::kLabelled,
                     .metric = "score",
                     .summary = state.summary,
                     .load = load_tracking,
                     .check = check_tracking,
                     .breakdowns = {{"length"}}});
  }
  return tasks;
}

}  // namespace deltanet::eval
