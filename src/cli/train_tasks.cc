#include "cli/train_tasks.h"

#include <fmt/format.h>

#include <algorithm>

#include "deltanet/error.h"
#include "eval/ask.h"
#include "model/model_impl.h"
#include "train/run/training_data.h"

namespace deltanet::cli {
namespace {

// Less than what `deltanet eval` takes: the moments and the gradients are in memory as well.
constexpr int64_t kPassTokens = 2048, kStateBytes = int64_t{128} << 20;

eval::AskOptions ask_options(const Config& config, const Tokenizer& tokenizer, int64_t max_length) {
  eval::AskOptions options;
  options.batch.tokens = kPassTokens;
  options.batch.state_bytes = kStateBytes;
  options.rules.max_length = options.rules.window = max_length;
  options.rules.prefix = eval::prefix_of(config, &tokenizer);
  options.end_ids = eval::end_ids_of(config, &tokenizer);
  return options;
}

}  // namespace

TrainTasks::TrainTasks(const TrainConfig& config) {
  const Config model = config.model_config();
  const std::string path = chosen_tokenizer(config, model.vocab_size);
  if (path.empty()) {
    throw Error("[train] eval_tasks: the data are token ids without a tokenizer; expected tokenizer = \"PATH\"");
  }
  tokenizer_ = path == "bytes" ? byte_tokenizer() : load_tokenizer(path);
  reader_ = {.tokenizer = tokenizer_.get(), .vocab_size = model.vocab_size};
  const eval::TaskOptions options{.data = config.eval_tasks_data, .limit = config.eval_tasks_limit};
  const eval::ReadingRules rules = ask_options(model, *tokenizer_, config.sequence_length).rules;
  for (const eval::Task* task : eval::chosen_tasks(config.eval_tasks)) {
    tasks_.emplace_back(task, eval::load_task(*task, options, reader_));
    for (const eval::Example& example : tasks_.back().second.examples) eval::encode(example, reader_, rules);
  }
}

TaskScores TrainTasks::evaluate(Trainer& trainer, const std::function<void(const std::string&)>& show) const {
  // The trainer keeps its weights; passes without gradients have memory of their own as long as they last.
  const std::shared_ptr<Weights> borrowed(&trainer.weights(), [](Weights*) {});
  Model model = ModelAccess::of(borrowed, trainer.threads());
  eval::AskOptions options = ask_options(trainer.layout().config(), *tokenizer_, trainer.config().sequence_length);
  options.threads = trainer.threads();
  TaskScores scores;
  for (const auto& [task, loaded] : tasks_) {
    const eval::TaskResult result =
        eval::ask(model, *task, loaded, reader_, options, nullptr, [&](const eval::AskProgress& progress) {
          show(fmt::format("{}: {}/{} examples", task->name, progress.examples, progress.all_examples));
        });
    const eval::Metric& metric = eval::find_metric(task->kind, task->metric);
    scores.emplace_back(task->name, eval::estimate(metric, result.examples).value);
  }
  return scores;
}

}  // namespace deltanet::cli
