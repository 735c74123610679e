// How probable are texts.

#include <algorithm>

#include "base/file.h"
#include "data/unicode/utf8.h"
#include "deltanet/error.h"
#include "eval/data_file.h"
#include "eval/task_tables.h"
#include "eval/text.h"
#include "eval/wikitext.h"

namespace deltanet::eval {
namespace {

Example lambada(const Record& record) {
  const std::string& text = record.words("text");
  const std::size_t blank = text.rfind(' ');
  if (blank == std::string::npos || blank + 1 == text.size()) {
    record.refuse("text", "\"" + text.substr(0, 100) + "\"", "a text that ends with a blank and a word");
  }
  return {Cloze{.context = text.substr(0, blank), .continuation = text.substr(blank)}};
}

LoadedTask wikitext(const Task& task, const TaskOptions& options, const TaskModel& /*model*/) {
  const std::filesystem::path file =
      find_data_file(task, options.data, {".jsonl", ".jsonl.gz", ".jsonl.zst", ".raw", ".txt"});
  LoadedTask loaded;
  loaded.about = about_file(file);
  const auto add = [&](std::string_view page) {
    loaded.examples.push_back({Document{.text = detokenized_wikitext(page),
                                        .words = pieces_between_blanks(page),
                                        .bytes = static_cast<int64_t>(page.size())}});
    return static_cast<int64_t>(loaded.examples.size()) != options.limit;
  };
  const std::string ending = file.extension().string();
  if (ending != ".raw" && ending != ".txt") {
    read_records(file, [&](const Record& record) { return add(record.words("page")); });
    return loaded;
  }
  constexpr int64_t kLargest = int64_t{1} << 30;
  const std::string text = read_file(file, kLargest);
  if (!data::is_valid_utf8(text))
    throw Error("[eval] " + file.string() + ": given invalid UTF-8; expected valid UTF-8");
  for (const std::string& page : wikitext_pages(text)) {
    if (!add(page)) break;
  }
  return loaded;
}

}  // namespace

std::vector<Task> language_tasks() {
  return {
      {.name = "wikitext",
       .title = "Wiki",
       .group = "commonsense",
       .kind = Kind::kDocument,
       .metric = "word_perplexity",
       .summary = "whole articles of Wikipedia",
       .files = {"wikitext_test", "wikitext2_test", "wikitext"},
       .fields = "page, or the raw text of the split (.raw)",
       .source = "huggingface.co/datasets/EleutherAI/wikitext_document_level, wikitext-2-raw-v1, test",
       .load = wikitext},
      {.name = "lambada",
       .title = "Lamb.",
       .group = "commonsense",
       .kind = Kind::kCloze,
       .metric = "acc",
       .summary = "the last word of a passage",
       .files = {"lambada_test", "lambada_openai_test", "lambada"},
       .fields = "text",
       .source = "huggingface.co/datasets/EleutherAI/lambada_openai, test",
       .make = lambada},
  };
}

}  // namespace deltanet::eval
