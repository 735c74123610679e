// In-context retrieval as in Based (Arora et al. 2024): a passage, and a text or a question that its answer completes.

#include <utility>

#include "eval/task_tables.h"
#include "eval/text.h"

namespace deltanet::eval {
namespace {

constexpr int64_t kNewTokens = 48;
constexpr int64_t kWindow = 2048;  // of prompt and answer, as the paper's models were trained with

Example question(std::string prompt, std::vector<std::string> answers, const char* stop) {
  return {Question{.prompt = std::move(prompt),
                   .answers = std::move(answers),
                   .stops = {stop},
                   .max_tokens = kNewTokens,
                   .most_prompt_tokens = kWindow - kNewTokens}};
}

Example completion(const Record& record) { return question(record.words("text"), {record.words("value")}, "\n"); }

// The harness's version 0 of squad_completion stops at a blank line.
Example squad(const Record& record) { return question(record.words("text"), {record.words("value")}, "\n\n"); }

std::string_view without_dots(std::string_view text) {
  while (text.starts_with('.')) text.remove_prefix(1);
  while (text.ends_with('.')) text.remove_suffix(1);
  return text;
}

// The question stands at the end of some contexts already, also several times.
Example passage(const Record& record) {
  std::string context = strip(record.words("context"));
  const std::string asked = strip(record.words("question")), small = lower(asked);
  while (lower(context).ends_with(small)) {
    // The characters of the question, whose bytes may differ in its small form.
    std::string_view rest = context;
    for (int64_t left = characters(asked); left > 0; --left) {
      do {
        rest.remove_suffix(1);
      } while ((static_cast<unsigned char>(context[rest.size()]) & 0xC0) == 0x80);
    }
    context = strip_right(rest);
  }
  return question(std::string(without_dots(context)) + ". " + asked, record.texts("answers"), "\n");
}

}  // namespace

std::vector<Task> retrieval_tasks() {
  const auto task = [](std::string_view name, std::string_view title, std::string_view summary,
                       std::vector<std::string_view> files, std::string_view fields, std::string_view source,
                       Example (*make)(const Record&)) {
    return Task{.name = name,
                .title = title,
                .group = "retrieval",
                .kind = Kind::kQuestion,
                .metric = "contains",
                .summary = summary,
                .files = std::move(files),
                .fields = fields,
                .source = source,
                .make = make};
  };
  constexpr std::string_view kCompletion = "text, value", kPassage = "context, question, answers [...]";
  return {
      task("fda", "FDA", "facts of a report on a medical device", {"fda_validation", "fda_valid", "fda"}, kCompletion,
           "huggingface.co/datasets/hazyresearch/based-fda, validation", completion),
      task("swde", "SWDE", "facts of a web page", {"swde_validation", "swde_valid", "swde"}, kCompletion,
           "huggingface.co/datasets/hazyresearch/based-swde-v2, validation", completion),
      task("squad", "SQuAD", "a question about a paragraph, as a sentence to complete",
           {"squad_validation", "squad_valid", "squad_completion", "squad"}, kCompletion,
           "huggingface.co/datasets/hazyresearch/based-squad, validation", squad),
      task("triviaqa", "TQA", "a question of a quiz, with web pages",
           {"triviaqa_validation", "triviaqa_valid", "triviaqa"}, kPassage,
           "huggingface.co/datasets/hazyresearch/based_triviaqa, validation", passage),
      task("drop", "DROP", "a question that counts or compares, with a paragraph",
           {"drop_validation", "drop_valid", "drop"}, kPassage,
           "huggingface.co/datasets/hazyresearch/based_drop, validation", passage),
  };
}

}  // namespace deltanet::eval
