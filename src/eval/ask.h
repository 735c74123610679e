#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "deltanet/model.h"
#include "eval/requests.h"
#include "eval/result.h"
#include "eval/saved_examples.h"
#include "eval/task.h"
#include "model/config/config.h"

// Asks a model the examples of a task.

namespace deltanet::eval {

struct AskOptions {
  ReadingRules rules = {};
  BatchOptions batch = {};
  std::vector<int32_t> end_ids = {};  // end what is said
  int threads = 0;                    // of the tokenizer
};

// BOS, else EOS: of the tokenizer (null: none), else of config.json.
std::optional<int32_t> prefix_of(const Config& config, const Tokenizer* tokenizer);
// The EOS of both.
std::vector<int32_t> end_ids_of(const Config& config, const Tokenizer* tokenizer);

struct AskProgress {
  int64_t examples = 0, all_examples = 0;
  int64_t tokens = 0, all_tokens = 0;  // read; all of them: without new tokens
};

// Packs all examples and reads once what they begin with. saved (null: none): examples that it holds are not asked
// again, and new ones are added. Throws Error where the model says what is no number: that is never counted as wrong.
TaskResult ask(Model& model, const Task& task, const LoadedTask& loaded, const TaskModel& reader,
               const AskOptions& options, SavedExamples* saved,
               const std::function<void(const AskProgress&)>& on_progress = {});

}  // namespace deltanet::eval
