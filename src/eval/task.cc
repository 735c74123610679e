#include "eval/task.h"

#include <algorithm>
#include <filesystem>

#include "base/edit_distance.h"
#include "base/json.h"
#include "deltanet/error.h"
#include "eval/data_file.h"
#include "eval/task_tables.h"

namespace deltanet::eval {
namespace {

std::vector<Task> all_tasks() {
  std::vector<Task> all;
  for (const auto& table : {choice_tasks, language_tasks, retrieval_tasks, needle_tasks, synthetic_tasks}) {
    for (Task& task : table()) all.push_back(std::move(task));
  }
  return all;
}

LoadedTask from_file(const Task& task, const TaskOptions& options) {
  const std::filesystem::path file = find_data_file(task, options.data);
  LoadedTask loaded;
  read_records(file, [&](const Record& record) {
    loaded.examples.push_back(task.make(record));
    loaded.examples.back().place = record.place();
    return static_cast<int64_t>(loaded.examples.size()) != options.limit;
  });
  loaded.about = about_file(file);
  return loaded;
}

}  // namespace

std::span<const Task> tasks() {
  static const std::vector<Task> table = all_tasks();
  return table;
}

const Task& find_task(std::string_view name) {
  for (const Task& task : tasks()) {
    if (task.name == name) return task;
  }
  std::vector<std::string_view> known;
  for (const Task& task : tasks()) known.push_back(task.name);
  throw Error("[eval] tasks: given " + in_quotes(name) + "; expected names of tasks; " + suggestion(name, known));
}

void check_distinct(std::string_view option, std::span<const int64_t> values) {
  for (auto value = values.begin(); value != values.end(); ++value) {
    if (std::find(values.begin(), value, *value) != value) {
      throw Error("[eval] " + std::string(option) + ": given " + std::to_string(*value) + " twice; expected each once");
    }
  }
}

std::vector<const Task*> chosen_tasks(std::span<const std::string> names) {
  std::vector<const Task*> chosen;
  const auto add = [&](const Task& task) {
    if (std::find(chosen.begin(), chosen.end(), &task) == chosen.end()) chosen.push_back(&task);
  };
  for (const std::string& name : names) {
    const auto of_group = [&](const Task& task) { return task.group == name; };
    const bool is_task =
        std::any_of(tasks().begin(), tasks().end(), [&](const Task& task) { return task.name == name; });
    if (is_task || std::none_of(tasks().begin(), tasks().end(), of_group)) {
      add(find_task(name));
      continue;
    }
    for (const Task& task : tasks()) {
      if (of_group(task)) add(task);
    }
  }
  return chosen;
}

std::vector<const Task*> chosen_tasks(std::string_view names) {
  std::vector<std::string> parts(1);
  for (const char c : names) {
    if (c == ',') {
      parts.emplace_back();
    } else if (c != ' ') {
      parts.back() += c;
    }
  }
  return chosen_tasks(parts);
}

LoadedTask load_task(const Task& task, const TaskOptions& options, const TaskModel& model) {
  LoadedTask loaded = task.load ? task.load(task, options, model) : from_file(task, options);
  if (loaded.examples.empty()) throw Error("[eval] " + std::string(task.name) + ": there are no examples");
  return loaded;
}

}  // namespace deltanet::eval
