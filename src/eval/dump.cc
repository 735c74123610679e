#include "eval/dump.h"

#include <variant>

#include "base/file.h"

namespace deltanet::eval {
namespace {

using Line = nlohmann::ordered_json;

void put(const Choice& choice, Line& line) {
  line["options"] = Line::array();
  for (const Option& option : choice.options) {
    line["options"].push_back({{"context", option.context}, {"continuation", option.continuation}});
  }
  line["answer"] = choice.answer;
}

void put(const Cloze& cloze, Line& line) {
  line["context"] = cloze.context;
  line["continuation"] = cloze.continuation;
}

void put(const Document& document, Line& line) {
  line["text"] = document.text;
  line["words"] = document.words;
  line["bytes"] = document.bytes;
}

void put(const Question& question, Line& line) {
  line["prompt"] = question.prompt;
  if (question.answers.size() == 1) {
    line["answer"] = question.answers.front();
  } else {
    line["answers"] = question.answers;
  }
}

void put(const Labelled& labelled, Line& line) {
  line["ids"] = labelled.ids;
  line["targets"] = labelled.targets;
}

}  // namespace

nlohmann::ordered_json dumped(const Task& task, const Example& example) {
  Line line = {{"task", task.name}};
  std::visit([&](const auto& ask) { put(ask, line); }, example.ask);
  for (const auto& [tag, value] : example.tags) {
    const auto whole = static_cast<int64_t>(value);
    if (static_cast<double>(whole) == value) {
      line[tag] = whole;
    } else {
      line[tag] = value;
    }
  }
  return line;
}

void dump_examples(std::span<const DumpedTask> tasks, const std::string& file) {
  AtomicFile to(file);
  for (const auto& [task, examples] : tasks) {
    for (const Example& example : examples) to.write(dumped(*task, example).dump() + "\n");
  }
  to.commit();
}

}  // namespace deltanet::eval
