#include "eval/ask.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/parallel.h"
#include "base/stopwatch.h"
#include "deltanet/error.h"
#include "eval/score.h"
#include "model/generation/text_stream.h"

namespace deltanet::eval {
namespace {

class Asking {
 public:
  Asking(Model& model, const Task& task, const LoadedTask& loaded, const TaskModel& reader, const AskOptions& options,
         SavedExamples* saved, const std::function<void(const AskProgress&)>& on_progress)
      : model_(model),
        task_(task),
        examples_(loaded.examples),
        reader_(reader),
        options_(options),
        saved_(saved),
        on_progress_(on_progress),
        encoded_(examples_.size()) {
    result_.examples.resize(examples_.size());
    result_.about = loaded.about;
    result_.notes = loaded.notes;
    progress_.all_examples = std::ssize(examples_);
  }

  TaskResult run() {
    const Stopwatch clock;
    parallel_for(options_.threads, std::ssize(examples_),
                 [&](int64_t i) { encoded_[i] = encode(examples_[i], reader_, options_.rules); });
    done_.resize(examples_.size());
    for (std::size_t i = 0; saved_ && i < examples_.size(); ++i) {
      const ExampleResult* before = saved_->find(static_cast<int64_t>(i), encoded_[i].key);
      if (!before) continue;
      result_.examples[i] = *before;
      done_[i] = true;
      ++result_.resumed;
    }
    progress_.examples = result_.resumed;
    batch_ = options_.batch;
    batch_.on_read = [&](int64_t read, int64_t all) {
      progress_.tokens += read;
      progress_.all_tokens = all;
      result_.tokens += read;
      report();
    };
    if (progress_.examples < progress_.all_examples) {
      if (task_.kind == Kind::kQuestion) {
        generate();
      } else {
        score();
      }
    }
    result_.seconds = clock.seconds();
    return std::move(result_);
  }

 private:
  void report() const {
    if (on_progress_) on_progress_(progress_);
  }

  void finish(std::size_t example, ExampleResult result) {
    result.tags = examples_[example].tags;
    result.cut = encoded_[example].cut;
    if (saved_) saved_->append(static_cast<int64_t>(example), encoded_[example].key, examples_[example].place, result);
    result_.examples[example] = std::move(result);
    ++progress_.examples;
    report();
  }

  // ---- sequences to score

  struct Sum {
    double log_prob = 0;
    int64_t greedy = 0, tokens = 0;
  };
  struct Pending {
    std::vector<Sum> sums;  // of the requests
    std::size_t left = 0;   // requests
    std::vector<double> loss = {};
    std::vector<int64_t> tokens = {};  // of the curve
  };

  void score() {
    std::vector<ScoreRequest> requests;
    std::vector<std::pair<std::size_t, std::size_t>> owners;  // example, and which of its requests
    std::vector<Pending> pending(examples_.size());
    for (std::size_t i = 0; i < examples_.size(); ++i) {
      pending[i].left = encoded_[i].requests.size();
      pending[i].sums.resize(encoded_[i].requests.size());
      for (std::size_t k = 0; k < encoded_[i].requests.size(); ++k) {
        owners.emplace_back(i, k);
        requests.push_back(std::move(encoded_[i].requests[k]));
        batch_.skip.push_back(done_[i]);
      }
    }
    const auto on_scored = [&](const Scored& scored) {
      const auto [example, which] = owners[scored.sequence];
      add(scored, requests[scored.sequence], examples_[example], pending[example], which);
      if (--pending[example].left > 0) return;
      finish(example,
             std::visit([&](const auto& ask) { return scores_of(ask, pending[example]); }, examples_[example].ask));
      pending[example] = {};
    };
    run_model([&] { model_.score(requests, batch_, on_scored); });
  }

  // What is no number is never counted as wrong: the model says so, and here in which task.
  template <class Call>
  void run_model(const Call& call) const {
    try {
      call();
    } catch (const Error& error) {
      if (!std::string_view(error.what()).starts_with("[model]")) throw;
      throw Error("[eval] " + std::string(task_.name) + ": the model cannot go on: " + error.what());
    }
  }

  static void add(const Scored& scored, const ScoreRequest& request, const Example& example, Pending& pending,
                  std::size_t which) {
    Sum& sum = pending.sums[which];
    for (std::size_t i = 0; i < scored.log_probs.size(); ++i) {
      sum.log_prob += scored.log_probs[i];
      sum.greedy += scored.greedy[i] ? 1 : 0;
    }
    sum.tokens += std::ssize(scored.log_probs);
    if (example.kind() != Kind::kDocument) return;
    for (std::size_t i = 0, next = 0; i < request.targets.size(); ++i) {
      if (request.targets[i] < 0) continue;
      const auto interval = static_cast<std::size_t>(curve_interval(static_cast<int64_t>(i) + 1));
      if (pending.loss.size() <= interval) {
        pending.loss.resize(interval + 1);
        pending.tokens.resize(interval + 1);
      }
      pending.loss[interval] -= scored.log_probs[next++];
      ++pending.tokens[interval];
    }
  }

  static ExampleResult scores_of(const Choice& choice, const Pending& pending) {
    ExampleResult result;
    std::vector<double> raw, normalized;
    std::vector<bool> greedy;
    for (std::size_t i = 0; i < choice.options.size(); ++i) {
      const Sum& sum = pending.sums[i];
      raw.push_back(sum.log_prob);
      normalized.push_back(sum.log_prob / static_cast<double>(choice.options[i].length));
      greedy.push_back(sum.greedy == sum.tokens);
    }
    const auto is_right = [&](const std::vector<double>& values) {  // of equal ones the first counts
      const auto best = std::max_element(values.begin(), values.end()) - values.begin();
      return std::cmp_equal(best, choice.answer) ? 1.0 : 0.0;
    };
    result.scores = {{"acc", is_right(raw)}, {"acc_norm", is_right(normalized)}};
    result.said = {{"log_likelihoods", raw}, {"greedy", greedy}};
    return result;
  }

  static ExampleResult scores_of(const Cloze& /*cloze*/, const Pending& pending) {
    const Sum& sum = pending.sums.front();
    ExampleResult result;
    result.scores = {{"log_likelihood", sum.log_prob}, {"acc", sum.greedy == sum.tokens ? 1.0 : 0.0}};
    return result;
  }

  static ExampleResult scores_of(const Document& document, const Pending& pending) {
    Sum whole;
    for (const Sum& sum : pending.sums) {
      whole.log_prob += sum.log_prob;
      whole.tokens += sum.tokens;
    }
    ExampleResult result;
    result.scores = {{"log_likelihood", whole.log_prob},
                     {"words", static_cast<double>(document.words)},
                     {"bytes", static_cast<double>(document.bytes)},
                     {"tokens", static_cast<double>(whole.tokens)}};
    result.said["curve"] = {{"loss", pending.loss}, {"tokens", pending.tokens}};
    return result;
  }

  static ExampleResult scores_of(const Labelled& labelled, const Pending& pending) {
    const Sum& sum = pending.sums.front();
    const double acc = static_cast<double>(sum.greedy) / static_cast<double>(sum.tokens);
    ExampleResult result;
    result.scores = {{"acc", acc}, {"score", (acc - labelled.chance) / (1 - labelled.chance)}};
    return result;
  }

  static ExampleResult scores_of(const Question& /*question*/, const Pending& /*pending*/) { return {}; }

  // ---- questions

  struct Answer {
    Answer(const Tokenizer& tokenizer, const Question& question) : stream(tokenizer, question.stops) {}
    TextStream stream;
    std::string text;
    int64_t tokens = 0;
  };

  // Questions of one length of answer at a time.
  void generate() {
    std::map<int64_t, std::vector<std::size_t>> by_length;
    for (std::size_t i = 0; i < examples_.size(); ++i) {
      by_length[std::get<Question>(examples_[i].ask).max_tokens].push_back(i);
    }
    for (const auto& [max_tokens, places] : by_length) generate(max_tokens, places);
  }

  void generate(int64_t max_tokens, const std::vector<std::size_t>& places) {
    std::vector<std::vector<int32_t>> prompts;
    std::map<int64_t, Answer> answers;  // of those that are being said
    batch_.skip.clear();
    for (const std::size_t i : places) {
      prompts.push_back(std::move(encoded_[i].prompt));
      batch_.skip.push_back(done_[i]);
    }
    const auto is_end = [&](int32_t id) {
      return std::find(options_.end_ids.begin(), options_.end_ids.end(), id) != options_.end_ids.end();
    };
    const auto on_token = [&](int64_t prompt, int32_t id) {
      const std::size_t example = places[prompt];
      const Question& question = std::get<Question>(examples_[example].ask);
      Answer& answer = answers.try_emplace(prompt, *reader_.tokenizer, question).first->second;
      const bool ends = is_end(id);
      if (!ends) answer.text += answer.stream.push(id);
      ++answer.tokens;
      bool right = contains_answer(answer.text, question.answers);
      if (!right && !ends && !answer.stream.stopped() && answer.tokens < max_tokens) return true;
      if (!right) {
        answer.text += answer.stream.finish();
        right = contains_answer(answer.text, question.answers);
      }
      ExampleResult result;
      result.scores = {{"contains", right ? 1.0 : 0.0}};
      result.said = {{"prediction", answer.text}};
      finish(example, std::move(result));
      answers.erase(prompt);
      return false;
    };
    const GenerateOptions greedily{.max_tokens = max_tokens, .vocab_size = reader_.tokenizer->vocab_size()};
    run_model([&] { model_.generate(prompts, greedily, batch_, on_token); });
  }

  Model& model_;
  const Task& task_;
  const std::vector<Example>& examples_;
  const TaskModel& reader_;
  const AskOptions& options_;
  SavedExamples* saved_;
  const std::function<void(const AskProgress&)>& on_progress_;
  std::vector<Encoded> encoded_;
  std::vector<bool> done_;  // by an earlier evaluation
  BatchOptions batch_;
  AskProgress progress_;
  TaskResult result_;
};

}  // namespace

std::optional<int32_t> prefix_of(const Config& config, const Tokenizer* tokenizer) {
  if (tokenizer && tokenizer->bos()) return tokenizer->bos();
  if (tokenizer && tokenizer->eos()) return tokenizer->eos();
  if (config.bos_token_id) return static_cast<int32_t>(*config.bos_token_id);
  if (config.eos_token_id) return static_cast<int32_t>(*config.eos_token_id);
  return {};
}

std::vector<int32_t> end_ids_of(const Config& config, const Tokenizer* tokenizer) {
  std::vector<int32_t> ids;
  if (config.eos_token_id) ids.push_back(static_cast<int32_t>(*config.eos_token_id));
  if (tokenizer && tokenizer->eos()) ids.push_back(*tokenizer->eos());
  return ids;
}

TaskResult ask(Model& model, const Task& task, const LoadedTask& loaded, const TaskModel& reader,
               const AskOptions& options, SavedExamples* saved,
               const std::function<void(const AskProgress&)>& on_progress) {
  if (!reader.tokenizer && task.kind != Kind::kLabelled) {
    throw Error("[eval] " + std::string(task.name) +
                ": the model has no tokenizer to read text with; expected --tokenizer PATH, or \"bytes\"");
  }
  return Asking(model, task, loaded, reader, options, saved, on_progress).run();
}

}  // namespace deltanet::eval
