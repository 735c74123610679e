// How probable are texts.

#include <algorithm>

#include "data/corpus/byte_source.h"
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

std::string read_text(const std::filesystem::path& file) {
  std::string text;
  const auto source = data::open_bytes(file);
  for (std::string_view bytes; !(bytes = source->next()).empty();) text += bytes;
  int64_t line = 1;
  for (std::string_view rest = text; !rest.empty(); ++line) {
    const std::size_t end = std::min(rest.find('\n'), rest.size() - 1) + 1;
    if (!data::is_valid_utf8(rest.substr(0, end))) {
      throw Error("[eval] " + file.string() + ": line " + std::to_string(line) +
                  ": given invalid UTF-8; expected valid UTF-8");
    }
    rest.remove_prefix(end);
  }
  return text;
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
    read_records(file, [&](const Record& record) {
      const bool more = add(record.words("page"));
      loaded.examples.back().place = record.place();
      return more;
    });
    return loaded;
  }
  for (const std::string& page : wikitext_pages(read_text(file))) {
    const bool more = add(page);
    loaded.examples.back().place = file.string() + ": article " + std::to_string(loaded.examples.size());
    if (!more) break;
  }
  return loaded;
}

LoadedTask text(const Task& /*task*/, const TaskOptions& options, const TaskModel& /*model*/) {
  if (options.text.empty()) throw Error("[eval] text: no text is given; expected --text FILE (.gz and .zst, too)");
  const std::string whole = read_text(options.text);
  if (strip(whole).empty()) throw Error("[eval] " + options.text + ": holds no text; expected some");
  LoadedTask loaded;
  loaded.about = about_file(options.text);
  loaded.examples.push_back({Document{
      .text = whole, .words = pieces_between_blanks(strip(whole)), .bytes = static_cast<int64_t>(whole.size())}});
  loaded.examples.back().place = options.text;
  return loaded;
}

}  // namespace

Task lambada_task() {
  return {.name = "lambada",
          .title = "Lamb.",
          .group = "commonsense",
          .kind = Kind::kCloze,
          .metric = "acc",
          .summary = "the last word of a passage",
          .perplexity_title = "LAMB",
          .files = {"lambada_test", "lambada_openai_test", "lambada"},
          .fields = "text",
          .source = "huggingface.co/datasets/EleutherAI/lambada_openai, test",
          .make = lambada};
}

std::vector<Task> language_tasks() {
  return {
      {.name = "wikitext",
       .title = "Wiki",
       .group = "commonsense",
       .kind = Kind::kDocument,
       .metric = "word_perplexity",
       .summary = "whole articles of Wikipedia",
       .perplexity_title = "Wiki",
       .files = {"wikitext_test", "wikitext2_test", "wikitext"},
       .fields = "page, or the raw text of the split (.raw)",
       .source = "huggingface.co/datasets/EleutherAI/wikitext_document_level, wikitext-2-raw-v1, test",
       .load = wikitext},
      {.name = "text",
       .title = "Text",
       .group = "text",
       .kind = Kind::kDocument,
       .metric = "bits_per_byte",
       .summary = "any text (--text FILE), with the loss by position",
       .perplexity_title = "Text",
       .load = text},
  };
}

}  // namespace deltanet::eval
