// S-NIAH-1, -2 and -3 of RULER, made here for any tokenizer: a needle in noise, a number and a UUID in text.

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>

#include "base/hash.h"
#include "base/parallel.h"
#include "base/text.h"
#include "data/corpus/text_source.h"
#include "data/unicode/utf8.h"
#include "deltanet/error.h"
#include "eval/data_file.h"
#include "eval/needle.h"
#include "eval/needle_words.h"
#include "eval/task_tables.h"

namespace deltanet::eval {
namespace {

struct Variant {
  std::string_view name, title, summary;
  bool in_text;
  NeedleValue value;
};
constexpr Variant kVariants[] = {
    {"s_niah_1", "S-NIAH-1", "a number, hidden in a line that repeats", false, NeedleValue::kNumber},
    {"s_niah_2", "S-NIAH-2", "a number, hidden in running text", true, NeedleValue::kNumber},
    {"s_niah_3", "S-NIAH-3", "a UUID, hidden in running text", true, NeedleValue::kUuid},
};
const std::vector<int64_t> kLengths = {512, 1024, 2048, 4096, 8192};  // of the paper
constexpr int64_t kLongest = 1 << 24;
constexpr int64_t kDepthStep = 20;  // percent, of the results by depth

const Variant& variant_of(const Task& task) {
  return *std::find_if(std::begin(kVariants), std::end(kVariants),
                       [&](const Variant& v) { return v.name == task.name; });
}

NeedleFit fit_of(const std::string& name) {
  if (name == "exact") return NeedleFit::kExact;
  if (name == "harness") return NeedleFit::kHarness;
  throw Error("[eval] --fit: given \"" + name + "\"; expected exact or harness");
}

// All documents of a file of text or JSON lines, blanks between them.
std::string read_text(const std::string& file) {
  data::TextSource source({file});
  std::string text;
  for (data::TextBlock block; source.next(block);) {
    if (!data::is_valid_utf8(block.bytes)) {
      std::string_view rest = block.bytes;
      int64_t line = block.line;
      for (data::Utf8Char c; (c = data::first_char(rest)).valid; rest.remove_prefix(c.size)) line += c.code == U'\n';
      throw Error("[eval] --haystack: " + file + ": line " + std::to_string(line) +
                  ": given invalid UTF-8; expected valid UTF-8");
    }
    source.split(block, [&](std::string_view part, bool ends_document) {
      text += part;
      if (ends_document) text += '\n';
    });
  }
  return text;
}

std::unique_ptr<Haystack> haystack_of(const Variant& variant, const TaskOptions& options) {
  if (!variant.in_text) return std::make_unique<NoiseHaystack>();
  if (options.haystack.empty()) {
    throw Error("[eval] --haystack: none is given, and " + std::string(variant.name) +
                " hides its needle in running text; expected a file of English prose that the model was not trained "
                "on, as text or as JSON lines with \"text\" (about 6,000 words for 8192 tokens). The paper's are Paul "
                "Graham's essays, huggingface.co/datasets/baber/paul_graham_essays");
  }
  if (!std::filesystem::is_regular_file(options.haystack)) {
    throw Error("[eval] --haystack: " + options.haystack + ": given no file; expected a file of text");
  }
  auto haystack = std::make_unique<TextHaystack>(read_text(options.haystack));
  if (haystack->units() == 0) throw Error("[eval] --haystack: " + options.haystack + ": given no words; expected text");
  return haystack;
}

// What tells tokenizers apart.
nlohmann::ordered_json about_tokenizer(const TaskModel& model) {
  uint64_t hash = kEmptyHash;
  const int64_t size = model.tokenizer->vocab_size();
  for (int64_t id = 0; id < size; ++id) {
    const std::string piece = model.tokenizer->piece(static_cast<int32_t>(id)) + '\n';
    hash = hash_bytes(piece.data(), piece.size(), hash);
  }
  return {{"vocab_size", size}, {"pieces_fnv1a", hash}, {"add_special", model.add_special}};
}

struct Range {
  int64_t least = std::numeric_limits<int64_t>::max(), most = 0, sum = 0, count = 0;
  void add(int64_t value) {
    least = std::min(least, value);
    most = std::max(most, value);
    sum += value;
    ++count;
  }
  double mean() const { return static_cast<double>(sum) / static_cast<double>(count); }
  std::string text() const {
    return grouped_text(least) + (most > least ? " to " + grouped_text(most) : std::string());
  }
};

Example example_of(const Needle& needle, const NeedlePrompt& prompt, int64_t length) {
  const int64_t depth_from = std::min(prompt.depth / kDepthStep * kDepthStep, 100 - kDepthStep);
  return {Question{.prompt = prompt.text, .answers = {needle.value}, .max_tokens = kNeedleAnswerTokens},
          {{"length", static_cast<double>(length)},
           {"depth", static_cast<double>(prompt.depth)},
           {"depth_from", static_cast<double>(depth_from)},
           {"tokens", static_cast<double>(prompt.tokens)}}};
}

class Maker {
 public:
  Maker(const Variant& variant, const TaskOptions& options, const TaskModel& model)
      : variant_(variant),
        options_(options),
        model_(model),
        fit_(fit_of(options.fit)),
        haystack_(haystack_of(variant, options)) {}

  void add_length(int64_t length, LoadedTask& loaded) {
    const int64_t samples = options_.samples_of_each_length();
    const NeedleFitter fitter(*haystack_, model_, length, fit_, needle(length, 0));
    std::vector<std::optional<NeedlePrompt>> prompts(samples);
    parallel_for(0, samples, [&](int64_t i) { prompts[i] = fitter.fit(needle(length, i)); });

    Range units, tokens;
    int64_t needed = 0;
    for (int64_t i = 0; i < samples; ++i) {
      if (prompts[i]) {
        units.add(prompts[i]->units);
        tokens.add(prompts[i]->tokens);
      } else {
        const int64_t least = fitter.prompt(needle(length, i), haystack_->least_units()).tokens;
        needed = std::max(needed, least + kNeedleAnswerTokens);
      }
    }
    if (needed > 0) {
      throw Error("[eval] --lengths: " + std::string(variant_.name) + ": " + grouped_text(length) +
                  " tokens are too few: a prompt " +
                  (haystack_->least_units() > 0 ? "with one line" : "without any haystack") + " and " +
                  std::to_string(kNeedleAnswerTokens) + " tokens of answer take up to " + grouped_text(needed));
    }
    for (int64_t i = 0; i < samples; ++i) {
      loaded.examples.push_back(example_of(needle(length, i), *prompts[i], length));
    }
    const std::string unit(haystack_->unit());
    loaded.about["lengths"].push_back(
        {{"length", length},
         {unit, {{"least", units.least}, {"most", units.most}}},
         {"tokens", {{"least", tokens.least}, {"mean", tokens.mean()}, {"most", tokens.most}}}});
    loaded.notes.push_back(std::string(variant_.name) + ", " + grouped_text(length) + " tokens: " +
                           (units.most == 0 ? "NO haystack fits, the needle stands alone"
                                            : "the first " + units.text() + " " + unit + " of the haystack") +
                           "; prompts of " + tokens.text() + " tokens, and " + std::to_string(kNeedleAnswerTokens) +
                           " are left for the answer");
    most_units_ = std::max(most_units_, units.most);
  }

  nlohmann::ordered_json about() const {
    nlohmann::ordered_json haystack = {{"kind", variant_.in_text ? "text" : "noise"}};
    if (variant_.in_text) {
      haystack.update(about_file(options_.haystack));
      haystack["words"] = haystack_->units();
      haystack["words_used"] = most_units_;
      haystack["sentence_rules"] = TextHaystack::kSentenceVersion;
    }
    return {{"haystack", haystack},
            {"keys", {{"adjectives", adjectives().size()}, {"nouns", nouns().size()}, {"version", kWordListVersion}}},
            {"fit", options_.fit},
            {"answer_tokens", kNeedleAnswerTokens},
            {"samples", options_.samples_of_each_length()},
            {"seed", options_.seed},
            {"tokenizer", about_tokenizer(model_)}};
  }

  std::string note() const {
    return std::string(variant_.name) + ": " +
           (variant_.in_text ? "haystack " + options_.haystack + ", " + grouped_text(haystack_->units()) + " words"
                             : std::string("haystack of noise")) +
           ", fit " + options_.fit + ", seed " + std::to_string(options_.seed);
  }

 private:
  // Example i of a length is a function of the seed, whatever else is asked.
  Needle needle(int64_t length, int64_t i) const {
    constexpr int kIndexBits = 24, kLengthBits = 36;
    const auto number = static_cast<uint64_t>(&variant_ - kVariants);
    Rng rng(options_.seed, number << (kIndexBits + kLengthBits) | static_cast<uint64_t>(length) << kIndexBits |
                               static_cast<uint64_t>(i));
    return draw_needle(variant_.value, rng);
  }

  const Variant& variant_;
  const TaskOptions& options_;
  const TaskModel& model_;
  NeedleFit fit_;
  std::unique_ptr<Haystack> haystack_;
  int64_t most_units_ = 0;
};

const std::vector<int64_t>& lengths_of(const TaskOptions& options) {
  return options.lengths.empty() ? kLengths : options.lengths;
}

void check_lengths(const TaskOptions& options) {
  for (const int64_t length : lengths_of(options)) {
    if (length < 1 || length > kLongest) {
      throw Error("[eval] --lengths: given " + std::to_string(length) + "; expected 1 to " + std::to_string(kLongest));
    }
  }
  check_distinct("--lengths", lengths_of(options));
}

void check(const Task& task, const TaskOptions& options) {
  check_lengths(options);
  fit_of(options.fit);
  haystack_of(variant_of(task), options);
}

LoadedTask load(const Task& task, const TaskOptions& options, const TaskModel& model) {
  check_lengths(options);
  if (model.tokenizer == nullptr) {
    throw Error("[eval] " + std::string(task.name) +
                ": given a model without a tokenizer; expected one that reads text");
  }
  Maker maker(variant_of(task), options, model);
  LoadedTask loaded;
  for (const int64_t length : lengths_of(options)) maker.add_length(length, loaded);
  loaded.notes.insert(loaded.notes.begin(), maker.note());
  nlohmann::ordered_json about = maker.about();
  about["lengths"] = std::move(loaded.about["lengths"]);
  loaded.about = std::move(about);
  return loaded;
}

}  // namespace

std::vector<Task> needle_tasks() {
  std::vector<Task> tasks;
  for (const Variant& variant : kVariants) {
    tasks.push_back({.name = variant.name,
                     .title = variant.title,
                     .group = "s_niah",
                     .kind = Kind::kQuestion,
                     .metric = "contains",
                     .summary = variant.summary,
                     .load = load,
                     .check = check,
                     .breakdowns = {{"length"}, {"length", "depth_from"}}});
  }
  return tasks;
}

}  // namespace deltanet::eval
