// S-NIAH: the prompts are parsed as a reader would, and counted as the model would.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <regex>
#include <set>

#include "base/rng.h"
#include "data/synthetic/labelled.h"
#include "eval/dump.h"
#include "eval/needle.h"
#include "eval/needle_words.h"
#include "eval/task.h"
#include "temporary_directory.h"

namespace deltanet::test {
namespace {

using eval::Example;
using eval::LoadedTask;
using eval::NoiseHaystack;
using eval::Question;
using eval::TaskModel;
using eval::TaskOptions;
using eval::TextHaystack;

const std::filesystem::path kTokenizers = std::filesystem::path(DELTANET_SOURCE_DIR) / "tests/golden/tokenizers";

std::unique_ptr<Tokenizer> tokenizer_of(const std::string& name) {
  return name == "bytes" ? byte_tokenizer() : load_tokenizer((kTokenizers / name).string());
}

// Sentences of 3 to 12 words; each word says which one it is.
std::string prose(int64_t words) {
  Rng rng(1);
  std::string text;
  int64_t left = 0;
  for (int64_t i = 0; i < words; ++i) {
    const bool begins = left == 0;
    if (begins) left = 3 + uniform_below(10, rng);
    text += (begins ? "W" : "w") + std::to_string(i) + (--left == 0 ? (i % 3 == 0 ? ".\n\n" : ".  ") : " ");
  }
  return text;
}

std::vector<std::string> split(const std::string& text, const std::string& at) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t found; (found = text.find(at, begin)) != std::string::npos; begin = found + at.size()) {
    parts.push_back(text.substr(begin, found - begin));
  }
  parts.push_back(text.substr(begin));
  return parts;
}

// A prompt taken apart; fails where a part is not what RULER has there.
struct Parsed {
  std::string kind, key, value, before, after;  // what of the haystack stands before and after the needle
};

void parse(const std::string& prompt, Parsed& parsed) {
  static const std::regex kPrompt(
      "A special magic (number|uuid) is hidden within the following text\\. Make sure to memorize it\\. I will quiz "
      "you "
      "about the (number|uuid) afterwards\\.\n([^]*)\nWhat is the special magic (number|uuid) for ([a-z]+-[a-z]+) "
      "mentioned in the provided text\\? The special magic (number|uuid) for ([a-z]+-[a-z]+) mentioned in the provided "
      "text is");
  static const std::regex kNeedle("One of the special magic (number|uuid)s for ([a-z]+-[a-z]+) is: ([0-9a-f-]+)\\.");
  std::smatch match;
  ASSERT_TRUE(std::regex_match(prompt, match, kPrompt)) << prompt.substr(0, 300);
  parsed.kind = match[1];
  parsed.key = match[5];
  for (const int i : {2, 4, 6}) EXPECT_EQ(match[i], parsed.kind);
  EXPECT_EQ(match[7], parsed.key);
  const std::string context = match[3];
  ASSERT_EQ(split(context, "special magic").size(), 2u) << "not one needle: " << context;
  std::smatch needle;
  ASSERT_TRUE(std::regex_search(context, needle, kNeedle)) << context.substr(0, 300);
  EXPECT_EQ(needle[1], parsed.kind);
  EXPECT_EQ(needle[2], parsed.key);
  parsed.value = needle[3];
  parsed.before = needle.prefix();
  parsed.after = needle.suffix();
}

int64_t tokens_of(const TaskModel& model, const std::string& text) {
  return static_cast<int64_t>(model.encode(text).size());
}

const std::set<int64_t>& all_depths() {
  static const std::set<int64_t> depths = [] {
    std::set<int64_t> set;
    for (int i = 0; i < 40; ++i) set.insert(std::lround(100.0 * i / 39));
    return set;
  }();
  return depths;
}

struct Case {
  std::string task, tokenizer, fit;
};

class SingleNeedle : public testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kSamples = 30, kWords = 3000;

  SingleNeedle() : tokenizer_(tokenizer_of(GetParam().tokenizer)) {
    model_ = {.tokenizer = tokenizer_.get(), .vocab_size = tokenizer_->vocab_size()};
    put(directory_ / "prose.txt", text_);
    options_.haystack = (directory_ / "prose.txt").string();
    options_.fit = GetParam().fit;
    options_.samples = kSamples;
    options_.lengths = {1024, 4096};
    if (GetParam().tokenizer != "bytes") options_.lengths = {512, 1024, 4096};  // a word of the text takes several
  }

  bool noise() const { return GetParam().task == "s_niah_1"; }
  LoadedTask load() const { return eval::load_task(eval::find_task(GetParam().task), options_, model_); }
  static const std::string& prompt(const Example& example) { return std::get<Question>(example.ask).prompt; }

  // The prompt with one more unit of the haystack behind it.
  std::string longer(const Parsed& parsed, const std::string& text) const {
    const std::string question = "\nWhat is the special magic";
    const std::size_t at = text.find(question);
    if (noise()) return text.substr(0, at) + "\n" + std::string(NoiseHaystack::kLine) + text.substr(at);
    const int64_t used = units(parsed);
    const std::string next = words_[used];
    const bool blank = text[at - 1] == ' ';
    return text.substr(0, at) + (blank ? "" : " ") + next + text.substr(at);
  }

  int64_t units(const Parsed& parsed) const {
    int64_t count = 0;
    for (const std::string& part : {parsed.before, parsed.after}) {
      if (noise()) {
        for (const std::string& line : split(part, "\n")) count += line == NoiseHaystack::kLine;
      } else {
        for (const std::string& word : split(part, " ")) count += !word.empty();
      }
    }
    return count;
  }

  TemporaryDirectory directory_;
  const std::string text_ = prose(kWords);
  const std::vector<std::string> words_ = [this] {
    std::vector<std::string> words;
    for (const std::string& line : split(text_, "\n")) {
      for (const std::string& word : split(line, " ")) {
        if (!word.empty()) words.push_back(word);
      }
    }
    return words;
  }();
  std::unique_ptr<Tokenizer> tokenizer_;
  TaskModel model_;
  TaskOptions options_;
};

TEST_P(SingleNeedle, PromptsHoldOneNeedleOfTheRightKindAndTheQuestionForIt) {
  const LoadedTask loaded = load();
  ASSERT_EQ(loaded.examples.size(), kSamples * options_.lengths.size());
  static const std::regex kNumber("[1-9][0-9]{6}");
  static const std::regex kUuid("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}");
  const bool uuid = GetParam().task == "s_niah_3";
  const std::set<std::string_view> adjectives(eval::adjectives().begin(), eval::adjectives().end()),
      nouns(eval::nouns().begin(), eval::nouns().end());
  std::set<std::string> keys, values;
  for (const Example& example : loaded.examples) {
    Parsed parsed;
    ASSERT_NO_FATAL_FAILURE(parse(prompt(example), parsed));
    EXPECT_EQ(parsed.kind, uuid ? "uuid" : "number");
    EXPECT_TRUE(std::regex_match(parsed.value, uuid ? kUuid : kNumber)) << parsed.value;
    const auto& question = std::get<Question>(example.ask);
    EXPECT_EQ(question.answers, std::vector<std::string>{parsed.value});
    EXPECT_TRUE(question.stops.empty());
    EXPECT_EQ(question.max_tokens, 128);
    EXPECT_EQ(question.most_prompt_tokens, 0) << "the needle may be cut away";
    const std::size_t hyphen = parsed.key.find('-');
    EXPECT_TRUE(adjectives.contains(parsed.key.substr(0, hyphen)));
    EXPECT_TRUE(nouns.contains(parsed.key.substr(hyphen + 1)));
    keys.insert(parsed.key);
    values.insert(parsed.value);
  }
  EXPECT_EQ(values.size(), loaded.examples.size());
  EXPECT_GT(keys.size(), loaded.examples.size() * 9 / 10);
}

TEST_P(SingleNeedle, HaystackIsTheBeginningOfTheTextWithTheNeedleBetweenSentences) {
  for (const Example& example : load().examples) {
    Parsed parsed;
    ASSERT_NO_FATAL_FAILURE(parse(prompt(example), parsed));
    const int64_t depth = std::lround(example.tags.at("depth"));
    const int64_t bin = std::lround(example.tags.at("depth_from"));
    EXPECT_TRUE(bin % 20 == 0 && bin <= depth && depth < (bin == 80 ? 101 : bin + 20)) << bin << ' ' << depth;
    if (noise()) {
      const int64_t units = this->units(parsed), before = static_cast<int64_t>(split(parsed.before, "\n").size()) - 1;
      ASSERT_GT(units, before) << "the needle is last";
      EXPECT_EQ(parsed.before + parsed.after, [&] {
        std::string lines;
        for (int64_t i = 0; i < units; ++i) {
          lines += (i == before ? "\n" : "") + std::string(NoiseHaystack::kLine) + (i + 1 < units ? "\n" : "");
        }
        return lines;
      }());
      EXPECT_EQ(depth, std::lround(100.0 * static_cast<double>(before) / static_cast<double>(units)));
      continue;
    }
    EXPECT_TRUE(all_depths().contains(depth)) << depth;
    ASSERT_TRUE(parsed.before.ends_with(' ') && parsed.after.starts_with(' '));
    std::string joined;
    for (int64_t i = 0; i < units(parsed); ++i) joined += (i ? " " : "") + words_[i];
    std::string both = parsed.before.substr(0, parsed.before.size() - 1);
    if (!both.empty() && parsed.after.size() > 1) both += ' ';
    both += parsed.after.substr(1);
    EXPECT_EQ(both, joined);
    // Sentences end at points, and the last words may be a part of one.
    const auto sentences = [](const std::string& text) {
      return static_cast<int64_t>(split(text, ".").size()) - 1 +
             !(text.size() < 2 || text.ends_with(".") || text.ends_with(". "));
    };
    const int64_t before = sentences(parsed.before), all = before + sentences(parsed.after);
    EXPECT_TRUE(parsed.before == " " || parsed.before.ends_with(". ") || parsed.after == " ");
    EXPECT_EQ(before, all * depth / 100) << all;
  }
}

TEST_P(SingleNeedle, PromptsAreAsLongAsTheFitSays) {
  const LoadedTask loaded = load();
  const bool exact = GetParam().fit == "exact";
  std::map<int64_t, std::set<int64_t>> used;
  for (const Example& example : loaded.examples) {
    const std::string& text = prompt(example);
    const int64_t length = std::lround(example.tags.at("length")), tokens = tokens_of(model_, text);
    EXPECT_EQ(std::lround(example.tags.at("tokens")), tokens);
    Parsed parsed;
    ASSERT_NO_FATAL_FAILURE(parse(text, parsed));
    const int64_t units = this->units(parsed);
    used[length].insert(units);
    if (exact) {
      EXPECT_LE(tokens + 128, length);
      // Where the last word begins or ends a sentence, one more may also move the needle, which takes a token or two.
      EXPECT_GT(tokens_of(model_, longer(parsed, text)) + 128 + 2, length);
      continue;
    }
    const int64_t step = !noise() ? 500 : length < 4096 ? 5 : 25;
    EXPECT_TRUE(units % step == 0 || (noise() && units == 1)) << units << " at " << length;
    const std::size_t prefix = text.rfind(" The special magic");
    EXPECT_LE(tokens_of(model_, text.substr(0, prefix)) + 128, length);
  }
  if (!exact) {
    // One more step would be too much: the text of the first example of a length, with a step more behind it.
    for (const auto& [length, units] : used) {
      EXPECT_LE(units.size(), 2u) << length << ": the step of the first example, or one less";
      const auto first = std::find_if(loaded.examples.begin(), loaded.examples.end(),
                                      [&](const Example& e) { return std::lround(e.tags.at("length")) == length; });
      std::string text = prompt(*first);
      text.resize(text.rfind(" The special magic"));
      const int64_t step = !noise() ? 500 : length < 4096 ? 5 : 25;
      for (int64_t i = 0; i < step; ++i) {
        text += noise() ? "\n" + std::string(NoiseHaystack::kLine) : " " + words_[*units.rbegin() + i];
      }
      text += std::get<Question>(first->ask).answers.front();
      EXPECT_GT(tokens_of(model_, text) + 128 + 2, length);
    }
  }
}

TEST_P(SingleNeedle, ExamplesAreAFunctionOfTheSeedAndOfNothingElse) {
  const auto prompts = [&] {
    std::map<int64_t, std::vector<std::string>> by_length;
    for (const Example& example : load().examples) {
      by_length[std::lround(example.tags.at("length"))].push_back(prompt(example));
    }
    return by_length;
  };
  const auto first = prompts();
  EXPECT_EQ(prompts(), first);
  const int64_t last = options_.lengths.back();
  options_.lengths = {last};
  EXPECT_EQ(prompts().at(last), first.at(last)) << "other lengths matter";
  options_.limit = kSamples / 2;
  EXPECT_EQ(prompts().at(last), std::vector(first.at(last).begin(), first.at(last).begin() + kSamples / 2));
  options_.seed = 1;
  const auto other = prompts().at(last);
  for (std::size_t i = 0; i < other.size(); ++i) EXPECT_NE(other[i], first.at(last)[i]);
}

TEST_P(SingleNeedle, ResultsSayWhatWasUsed) {
  const LoadedTask loaded = load();
  EXPECT_EQ(loaded.about.at("fit"), GetParam().fit);
  EXPECT_EQ(loaded.about.at("seed"), 0);
  EXPECT_EQ(loaded.about.at("samples"), kSamples);
  EXPECT_EQ(loaded.about.at("tokenizer").at("vocab_size"), tokenizer_->vocab_size());
  const auto& haystack = loaded.about.at("haystack");
  if (noise()) {
    EXPECT_EQ(haystack.at("kind"), "noise");
  } else {
    EXPECT_EQ(haystack.at("kind"), "text");
    EXPECT_EQ(haystack.at("file"), "prose.txt");
    EXPECT_EQ(haystack.at("bytes"), text_.size());
    EXPECT_EQ(haystack.at("words"), kWords);
    EXPECT_NE(loaded.notes.front().find("prose.txt"), std::string::npos);
  }
  const auto& lengths = loaded.about.at("lengths");
  ASSERT_EQ(lengths.size(), options_.lengths.size());
  int64_t most_units = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    EXPECT_EQ(lengths[i].at("length"), options_.lengths[i]);
    std::set<int64_t> tokens, units;
    for (const Example& example : loaded.examples) {
      if (std::lround(example.tags.at("length")) != options_.lengths[i]) continue;
      tokens.insert(std::lround(example.tags.at("tokens")));
      Parsed parsed;
      ASSERT_NO_FATAL_FAILURE(parse(prompt(example), parsed));
      units.insert(this->units(parsed));
    }
    EXPECT_EQ(lengths[i].at("tokens").at("least"), *tokens.begin());
    EXPECT_EQ(lengths[i].at("tokens").at("most"), *tokens.rbegin());
    const auto& of_units = lengths[i].at(noise() ? "lines" : "words");
    EXPECT_EQ(of_units.at("least"), *units.begin());
    EXPECT_EQ(of_units.at("most"), *units.rbegin());
    most_units = std::max(most_units, *units.rbegin());
  }
  if (!noise()) {
    EXPECT_EQ(haystack.at("words_used"), most_units);
  }
}

// What lies before the needle is read once for all prompts of a task: their ids are the same there, also where the text
// goes on differently behind it.
TEST_P(SingleNeedle, PromptsShareTheirIdsUpToTheNeedle) {
  const LoadedTask loaded = load();
  std::string deepest;
  for (const Example& example : loaded.examples) {
    const std::string before = prompt(example).substr(0, prompt(example).find("One of the special magic"));
    if (before.size() > deepest.size()) deepest = before;
  }
  const std::vector<int32_t> all = model_.encode(deepest);
  for (const Example& example : loaded.examples) {
    const std::vector<int32_t> ids = model_.encode(prompt(example));
    const std::size_t needle = prompt(example).find("One of the special magic");
    const auto shared = std::mismatch(ids.begin(), ids.end(), all.begin(), all.end()).first - ids.begin();
    // The last token before the needle may be one with what follows there.
    EXPECT_GE(shared + 1, tokens_of(model_, prompt(example).substr(0, needle - 1)));
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* task : {"s_niah_1", "s_niah_2", "s_niah_3"}) {
    for (const char* tokenizer : {"bytes", "gpt2.json", "sentencepiece_bpe.model"}) {
      for (const char* fit : {"exact", "harness"}) {
        all.push_back({task, tokenizer, fit});
      }
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Tasks, SingleNeedle, testing::ValuesIn(cases()), [](const auto& test) {
  std::string name = test.param.task + "_" + test.param.tokenizer + "_" + test.param.fit;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
});

// ---- single parts

TEST(Needle, DepthsAreUniform) {
  constexpr int kDraws = 40000;
  const TextHaystack haystack("One. Two. Three.");
  std::map<int64_t, int> counts;
  for (int i = 0; i < kDraws; ++i) {
    Rng rng(5, i);
    const eval::Needle needle = eval::draw_needle(eval::NeedleValue::kNumber, rng);
    ++counts[haystack.hide("", 3, needle.place).depth];
  }
  ASSERT_EQ(counts.size(), all_depths().size());
  double chi_square = 0;
  for (const auto& [depth, count] : counts) {
    EXPECT_TRUE(all_depths().contains(depth)) << depth;
    chi_square += std::pow(count - kDraws / 40.0, 2) / (kDraws / 40.0);
  }
  EXPECT_LT(chi_square, 78);  // 39 degrees of freedom: above 78 once in 5000 seeds
}

TEST(Needle, PlacesInNoiseAreUniform) {
  constexpr int kDraws = 10000, kLines = 5;
  const NoiseHaystack haystack;
  std::map<int64_t, int> counts;
  for (int i = 0; i < kDraws; ++i) {
    Rng rng(6, i);
    const eval::Needle needle = eval::draw_needle(eval::NeedleValue::kNumber, rng);
    ++counts[haystack.hide("", kLines, needle.place).depth];
  }
  ASSERT_EQ(counts.size(), static_cast<std::size_t>(kLines));
  // Five standard deviations of a count: sqrt(n p (1 - p)).
  for (const auto& [depth, count] : counts)
    EXPECT_NEAR(count, kDraws / 5.0, 5 * std::sqrt(kDraws * 0.2 * 0.8)) << depth;
}

TEST(Needle, WordListsAreOfDifferentSmallWords) {
  for (const auto& list : {eval::adjectives(), eval::nouns()}) {
    EXPECT_GE(list.size(), 300u);
    EXPECT_EQ(std::set<std::string_view>(list.begin(), list.end()).size(), list.size());
    for (const std::string_view word : list) {
      EXPECT_TRUE(!word.empty() && std::all_of(word.begin(), word.end(), [](char c) { return c >= 'a' && c <= 'z'; }))
          << word;
    }
  }
}

std::vector<std::string> sentences_of(const std::string& text) {
  const TextHaystack haystack(text);
  const std::string joined = haystack.hide("", haystack.units(), 0).text;
  const std::vector<std::string> words = split(joined.substr(2), " ");
  std::vector<std::string> sentences;
  std::vector<int64_t> starts = haystack.sentence_starts();
  starts.push_back(haystack.units());
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
    sentences.emplace_back();
    for (int64_t w = starts[i]; w < starts[i + 1]; ++w) sentences.back() += (w > starts[i] ? " " : "") + words[w];
  }
  return sentences;
}

TEST(Needle, SentencesEndWhereReadersEndThem) {
  using Sentences = std::vector<std::string>;
  EXPECT_EQ(sentences_of("One two. Three! Four?\n\n Five"), (Sentences{"One two.", "Three!", "Four?", "Five"}));
  EXPECT_EQ(sentences_of("Mr. Smith met J. R. Jones. They ate."),
            (Sentences{"Mr. Smith met J. R. Jones.", "They ate."}));
  EXPECT_EQ(sentences_of("\"Why?\" she asked. \"No. It was I.\" (He left.) So."),
            (Sentences{"\"Why?\" she asked.", "\"No.", "It was I.\"", "(He left.)", "So."}));
  EXPECT_EQ(sentences_of("See No. 7, e.g. Bath. It is 3.5 km off... and on\u2026 Then"),
            (Sentences{"See No. 7, e.g. Bath.", "It is 3.5 km off... and on\u2026", "Then"}));
  EXPECT_EQ(sentences_of("\u201CYes.\u201D \u201CAh!\u201D cried he. \u00C9mile came. \u00E9t\u00E9."),
            (Sentences{"\u201CYes.\u201D", "\u201CAh!\u201D cried he.", "\u00C9mile came. \u00E9t\u00E9."}));
  EXPECT_EQ(sentences_of("in 1984. 12 came."), (Sentences{"in 1984.", "12 came."}));
  EXPECT_EQ(sentences_of(""), Sentences{});
  EXPECT_EQ(sentences_of(" . \n"), Sentences{"."});
}

class NeedleErrors : public testing::Test {
 protected:
  std::string error(const std::string& task) {
    return error_of([&] { eval::load_task(eval::find_task(task), options_, model_); });
  }
  // The same before any model is there.
  std::string early_error(const std::string& task) {
    const std::string early = error_of([&] { eval::find_task(task).check(eval::find_task(task), options_); });
    EXPECT_EQ(early, error(task));
    return early;
  }
  void expect(const std::string& error, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) EXPECT_NE(error.find(part), std::string::npos) << "the error is: " << error;
  }

  TemporaryDirectory directory_;
  std::unique_ptr<Tokenizer> tokenizer_ = tokenizer_of("bytes");
  TaskModel model_ = {.tokenizer = tokenizer_.get(), .vocab_size = 256};
  TaskOptions options_ = [] {
    TaskOptions options;
    options.samples = 20;
    return options;
  }();
};

TEST_F(NeedleErrors, MissingAndBadHaystacksAreNamed) {
  expect(early_error("s_niah_2"), {"--haystack: none is given", "6,000 words", "paul_graham_essays"});
  options_.haystack = (directory_ / "none.txt").string();
  expect(early_error("s_niah_2"), {"--haystack", "none.txt"});
  options_.haystack = directory_.path().string();
  expect(early_error("s_niah_2"), {"--haystack", "given no file"});
  put(directory_ / "empty.txt", " \n");
  options_.haystack = (directory_ / "empty.txt").string();
  expect(early_error("s_niah_3"), {"empty.txt", "no words"});
  put(directory_ / "bad.txt", "Good.\nB\xE9.\n");
  options_.haystack = (directory_ / "bad.txt").string();
  expect(early_error("s_niah_2"), {"bad.txt: line 2", "invalid UTF-8"});
  put(directory_ / "small.txt", prose(50));
  options_.haystack = (directory_ / "small.txt").string();
  options_.lengths = {2048};
  for (const char* fit : {"exact", "harness"}) {
    options_.fit = fit;
    expect(error("s_niah_2"), {"--haystack", "50 words", "2048 tokens"});
  }
}

TEST_F(NeedleErrors, HaystacksOfJsonLinesAreRead) {
  put(directory_ / "essays.jsonl", "{\"text\": \"One two.\"}\n{\"text\": \"" + split(prose(2000), "\n").front() +
                                       " Three.\"}\n{\"text\": \"" + std::string(9000, 'x') + "\"}\n");
  options_.haystack = (directory_ / "essays.jsonl").string();
  options_.lengths = {600};
  const LoadedTask loaded = eval::load_task(eval::find_task("s_niah_2"), options_, model_);
  EXPECT_NE(std::get<Question>(loaded.examples.front().ask).prompt.find("two."), std::string::npos);
}

TEST_F(NeedleErrors, LengthsThatAreTooShortAreSaidClearly) {
  put(directory_ / "prose.txt", prose(5000));
  options_.haystack = (directory_ / "prose.txt").string();
  options_.lengths = {2048, 450};
  expect(error("s_niah_3"), {"--lengths", "450 tokens are too few", "without any haystack", "128 tokens of answer"});
  options_.lengths = {300};
  expect(error("s_niah_1"), {"--lengths", "300 tokens are too few", "with one line"});
  for (const int64_t length : {int64_t{0}, int64_t{-5}, int64_t{1} << 40}) {
    options_.lengths = {length};
    expect(early_error("s_niah_1"), {"--lengths: given " + std::to_string(length)});
  }
}

// The harness's steps of 500 words: where not even one fits, its prompts hold the needle alone.
TEST_F(NeedleErrors, ColumnsWithoutAHaystackAreSaidClearly) {
  put(directory_ / "prose.txt", prose(5000));
  options_.haystack = (directory_ / "prose.txt").string();
  options_.lengths = {1024};
  options_.fit = "harness";
  const LoadedTask loaded = eval::load_task(eval::find_task("s_niah_2"), options_, model_);
  for (const Example& example : loaded.examples) {
    Parsed parsed;
    ASSERT_NO_FATAL_FAILURE(parse(std::get<Question>(example.ask).prompt, parsed));
    EXPECT_EQ(parsed.before + parsed.after, "  ");
  }
  expect(loaded.notes.back(), {"1,024 tokens: NO haystack fits"});
}

TEST_F(NeedleErrors, OtherFitsAndModelsWithoutTokenizersAreRefused) {
  options_.fit = "nearest";
  expect(early_error("s_niah_1"), {"--fit: given \"nearest\"", "exact or harness"});
  options_.fit = "exact";
  model_.tokenizer = nullptr;
  expect(error("s_niah_1"), {"without a tokenizer"});
}

TEST_F(NeedleErrors, DumpsHoldPromptAnswerDepthAndTokens) {
  options_.lengths = {1024};
  const eval::Task& task = eval::find_task("s_niah_1");
  const LoadedTask loaded = eval::load_task(task, options_, model_);
  const std::string file = (directory_ / "prompts.jsonl").string();
  const eval::DumpedTask dumped{&task, loaded.examples};
  eval::dump_examples({&dumped, 1}, file);
  const std::vector<std::string> lines = split(contents(file), "\n");
  ASSERT_EQ(lines.size(), loaded.examples.size() + 1);
  for (std::size_t i = 0; i < loaded.examples.size(); ++i) {
    const auto line = nlohmann::json::parse(lines[i]);
    const auto& question = std::get<Question>(loaded.examples[i].ask);
    EXPECT_EQ(line.at("task"), "s_niah_1");
    EXPECT_EQ(line.at("prompt"), question.prompt);
    EXPECT_EQ(line.at("answer"), question.answers.front());
    EXPECT_EQ(line.at("depth"), loaded.examples[i].tags.at("depth"));
    EXPECT_EQ(line.at("tokens"), static_cast<int64_t>(question.prompt.size())) << "one for each byte";
    EXPECT_EQ(line.at("length"), 1024);
  }
}

}  // namespace
}  // namespace deltanet::test
