// Multiple choice, with the prompts of lm-evaluation-harness.

#include <algorithm>

#include "data/unicode/utf8.h"
#include "eval/task_tables.h"
#include "eval/text.h"

namespace deltanet::eval {
namespace {

// Choices that differ in the continuation only.
Choice choice_of(const std::string& context, const std::vector<std::string>& choices, std::size_t answer) {
  Choice choice{.options = {}, .answer = answer};
  for (const std::string& text : choices) {
    choice.options.push_back({context, " " + text, std::max<int64_t>(1, characters(text))});
  }
  return choice;
}

Example arc(const Record& record) {
  const std::vector<std::string> texts = record.texts("choices.text"), labels = record.texts("choices.label");
  if (labels.size() != texts.size()) {
    record.refuse("choices.label", std::to_string(labels.size()) + " labels",
                  std::to_string(texts.size()) + ", one for each text");
  }
  const std::string& key = record.words("answerKey");
  const auto found = std::find(labels.begin(), labels.end(), key);
  if (found == labels.end()) record.refuse("answerKey", "\"" + key + "\"", "one of choices.label");
  return {choice_of("Question: " + record.words("question") + "\nAnswer:", texts,
                    static_cast<std::size_t>(found - labels.begin()))};
}

// What hellaswag's texts from WikiHow need.
std::string clean_hellaswag(std::string_view text) {
  std::string clean = replace_all(strip(text), " [title]", ". ");
  for (std::size_t open = 0; (open = clean.find('[', open)) != std::string::npos;) {
    const std::size_t close = clean.find(']', open);
    const std::size_t line = clean.find('\n', open);
    if (close == std::string::npos || line < close) {
      ++open;
    } else {
      clean.erase(open, close - open + 1);
    }
  }
  return replace_all(clean, "  ", " ");
}

Example hellaswag(const Record& record) {
  const std::string context = clean_hellaswag(record.text("activity_label") + ": " + record.text("ctx_a") + " " +
                                              capitalized(record.text("ctx_b")));
  std::vector<std::string> endings = record.texts("endings");
  for (std::string& ending : endings) {
    ending = clean_hellaswag(ending);
    if (strip(ending).empty()) record.refuse("endings", "one of nothing but marks", "words");
  }
  const int64_t label = record.integer("label", 0, static_cast<int64_t>(endings.size()) - 1);
  return {choice_of(context, endings, static_cast<std::size_t>(label))};
}

Example piqa(const Record& record) {
  return {choice_of("Question: " + record.words("goal") + "\nAnswer:", {record.words("sol1"), record.words("sol2")},
                    static_cast<std::size_t>(record.integer("label", 0, 1)))};
}

// The options differ in the context; the rest of the sentence is scored.
Example winogrande(const Record& record) {
  const std::string& sentence = record.words("sentence");
  const std::size_t gap = sentence.find('_');
  if (gap == std::string::npos) record.refuse("sentence", "no _", "one where the option belongs");
  const std::string rest = " " + strip(std::string_view(sentence).substr(gap + 1));
  if (rest == " ") record.refuse("sentence", "nothing behind _", "words there");
  Choice choice{.options = {}, .answer = static_cast<std::size_t>(record.integer("answer", 1, 2) - 1)};
  for (const char* option : {"option1", "option2"}) {
    choice.options.push_back({sentence.substr(0, gap) + record.words(option), rest, characters(rest) - 1});
  }
  return {choice};
}

Example boolq(const Record& record) {
  return {choice_of(record.words("passage") + "\nQuestion: " + record.words("question") + "?\nAnswer:", {"no", "yes"},
                    static_cast<std::size_t>(record.integer("label", 0, 1)))};
}

Example sciq(const Record& record) {
  return {choice_of(strip_left(record.text("support")) + "\nQuestion: " + record.words("question") + "\nAnswer:",
                    {record.words("distractor1"), record.words("distractor2"), record.words("distractor3"),
                     record.words("correct_answer")},
                    3)};
}

constexpr std::string_view kArc = "question, choices {text: [...], label: [...]}, answerKey";

}  // namespace

std::vector<Task> choice_tasks() {
  const auto task = [](std::string_view name, std::string_view title, std::string_view metric, std::string_view summary,
                       std::vector<std::string_view> files, std::string_view fields, std::string_view source,
                       Example (*make)(const Record&)) {
    return Task{.name = name,
                .title = title,
                .group = "commonsense",
                .kind = Kind::kChoice,
                .metric = metric,
                .summary = summary,
                .files = std::move(files),
                .fields = fields,
                .source = source,
                .make = make};
  };
  return {
      task("arc_easy", "ARC_e", "acc", "science questions of grade school", {"arc_easy_test", "arc_easy"}, kArc,
           "huggingface.co/datasets/allenai/ai2_arc, ARC-Easy, test", arc),
      task("arc_challenge", "ARC_c", "acc_norm", "the harder ones of them", {"arc_challenge_test", "arc_challenge"},
           kArc, "huggingface.co/datasets/allenai/ai2_arc, ARC-Challenge, test", arc),
      task("hellaswag", "HellaS", "acc_norm", "how a scene goes on",
           {"hellaswag_validation", "hellaswag_valid", "hellaswag_val", "hellaswag"},
           "activity_label, ctx_a, ctx_b, endings [...], label", "huggingface.co/datasets/Rowan/hellaswag, validation",
           hellaswag),
      lambada_task(),
      task("piqa", "PIQA", "acc", "everyday physics", {"piqa_validation", "piqa_valid", "piqa"},
           "goal, sol1, sol2, label", "huggingface.co/datasets/baber/piqa, validation", piqa),
      task("winogrande", "WinoG", "acc", "whom a pronoun means",
           {"winogrande_validation", "winogrande_valid", "winogrande_xl_validation", "winogrande"},
           "sentence, option1, option2, answer",
           "huggingface.co/datasets/allenai/winogrande, winogrande_xl, validation", winogrande),
      task("boolq", "BoolQ", "acc", "yes or no, after a passage", {"boolq_validation", "boolq_valid", "boolq"},
           "passage, question, label", "huggingface.co/datasets/aps/super_glue, boolq, validation", boolq),
      task("sciq", "SciQ", "acc", "science questions with their support", {"sciq_test", "sciq"},
           "support, question, distractor1, distractor2, distractor3, correct_answer",
           "huggingface.co/datasets/allenai/sciq, test", sciq),
  };
}

}  // namespace deltanet::eval
