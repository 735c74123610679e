#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "eval/task.h"

namespace deltanet::eval {

// What a model is asked, without asking it: a line of JSON for each example of a task.
//
//   questions           task, prompt, answer (answers, where there are several), then the tags: length, depth, tokens
//   labels              task, ids, targets, then the tags: length, pairs
//   everything else     task, and what the example holds
nlohmann::ordered_json dumped(const Task& task, const Example& example);

struct DumpedTask {
  const Task* task;
  std::span<const Example> examples;
};
// The lines of several tasks. The file is replaced when all of them are written.
void dump_examples(std::span<const DumpedTask> tasks, const std::string& file);

}  // namespace deltanet::eval
