// Evaluation: what tasks make of their files, what a model is asked, and what becomes of its answers.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "deltanet/error.h"
#include "eval/ask.h"
#include "eval/compare.h"
#include "eval/data_file.h"
#include "eval/report.h"
#include "eval/requests.h"
#include "eval/score.h"
#include "eval/text.h"
#include "eval/wikitext.h"
#include "temporary_directory.h"

namespace deltanet::test {
namespace {

using namespace eval;

Model bytes_model(uint64_t seed = 3) {
  return Model::from_config(
      R"({"model_type": "precond_gated_deltanet", "hidden_size": 32, "num_hidden_layers": 2, "num_heads": 2,
          "head_dim": 16, "expand_v": 1.0, "intermediate_size": 48, "vocab_size": 256, "initializer_range": 0.3})",
      seed);
}

struct Bytes {
  std::unique_ptr<Tokenizer> tokenizer = byte_tokenizer();
  TaskModel reader{.tokenizer = tokenizer.get(), .vocab_size = 256};
  AskOptions options{.rules = {.max_length = 64, .window = 64, .prefix = 10}};
};

std::vector<int32_t> ids_of(const std::string& text) { return byte_tokenizer()->encode(text); }

// The sum of log p of the ids of `after` behind `before`, from one pass over both.
double log_likelihood(Model& model, std::vector<int32_t> before, const std::vector<int32_t>& after) {
  std::vector<int32_t> targets(before.size() - 1, -100);
  targets.insert(targets.end(), after.begin(), after.end());
  before.insert(before.end(), after.begin(), after.end() - 1);
  const int64_t offsets[] = {0, std::ssize(before)};
  std::vector<double> log_prob(before.size());
  const auto greedy = std::make_unique<bool[]>(before.size());
  model.log_probs(before, targets, offsets, log_prob.data(), greedy.get());
  return std::accumulate(log_prob.begin(), log_prob.end(), 0.0);
}

std::string said_greedily(Model& model, const std::string& prompt, int64_t tokens) {
  std::vector<int32_t> said;
  Session session = model.start();
  const std::vector<std::vector<int32_t>> prompts = {ids_of(prompt)};
  session.generate(prompts, {.max_tokens = tokens}, [&](int64_t, int32_t id) {
    said.push_back(id);
    return true;
  });
  return byte_tokenizer()->decode(said);
}

LoadedTask load(const std::string& task, const TemporaryDirectory& folder, int64_t limit = 0) {
  return load_task(find_task(task), {.data = folder.path().string(), .limit = limit}, {});
}

// ---- files

TEST(EvalData, ArcOptionsAreThoseOfTheHarness) {
  TemporaryDirectory folder;
  put(folder / "arc_easy_test.jsonl",
      "{\"question\": \"Why?\", \"choices\": {\"text\": [\"Because\", \"é\"], \"label\": [\"1\", \"2\"]}, "
      "\"answerKey\": \"2\"}\n\n");
  const LoadedTask loaded = load("arc_easy", folder);
  ASSERT_EQ(loaded.examples.size(), 1u);
  const Choice& choice = std::get<Choice>(loaded.examples[0].ask);
  EXPECT_EQ(choice.answer, 1u);
  ASSERT_EQ(choice.options.size(), 2u);
  EXPECT_EQ(choice.options[0].context, "Question: Why?\nAnswer:");
  EXPECT_EQ(choice.options[0].continuation, " Because");
  EXPECT_EQ(choice.options[0].length, 7);
  EXPECT_EQ(choice.options[1].length, 1);  // characters, not bytes
  EXPECT_NE(loaded.examples[0].place.find("arc_easy_test.jsonl: line 1"), std::string::npos);
  EXPECT_EQ(loaded.about["file"], "arc_easy_test.jsonl");
}

TEST(EvalData, WinograndeScoresTheRestOfTheSentence) {
  TemporaryDirectory folder;
  put(folder / "winogrande.jsonl",
      R"({"sentence": "The cup and the _ broke .", "option1": "jar", "option2": "pot", "answer": "2"})");
  const Choice choice = std::get<Choice>(load("winogrande", folder).examples[0].ask);
  EXPECT_EQ(choice.options[0].context, "The cup and the jar");
  EXPECT_EQ(choice.options[1].context, "The cup and the pot");
  EXPECT_EQ(choice.options[1].continuation, " broke .");
  EXPECT_EQ(choice.answer, 1u);
}

TEST(EvalData, TheQuestionStandsOnceBehindItsPassage) {
  TemporaryDirectory folder;
  put(folder / "drop.jsonl",
      R"({"context": " It was so. HOW many? How many? ", "question": " How many? ", "answers": ["3", "three"]})");
  const Question question = std::get<Question>(load("drop", folder).examples[0].ask);
  EXPECT_EQ(question.prompt, "It was so. How many?");
  EXPECT_EQ(question.answers, (std::vector<std::string>{"3", "three"}));
  EXPECT_EQ(question.max_tokens, 48);
  EXPECT_EQ(question.most_prompt_tokens, 2000);
}

TEST(EvalData, PackedFilesAndLimits) {
  TemporaryDirectory folder;
  const std::filesystem::path golden = std::filesystem::path(DELTANET_SOURCE_DIR) / "tests/golden/text/two.jsonl.gz";
  std::filesystem::copy_file(golden, folder / "lambada.jsonl.gz");  // holds texts of one word
  EXPECT_NE(error_of([&] { load("lambada", folder); }).find("lambada.jsonl.gz: line 1: text: given \"first\""),
            std::string::npos);
  put(folder / "lambada.jsonl", "{\"text\": \"one more\"}\n\n{\"text\": \"and another\"}");  // goes first
  const LoadedTask loaded = load("lambada", folder);
  ASSERT_EQ(loaded.examples.size(), 2u);
  EXPECT_EQ(std::get<Cloze>(loaded.examples[1].ask).continuation, " another");
  EXPECT_NE(loaded.examples[1].place.find("line 3"), std::string::npos);
  EXPECT_EQ(load("lambada", folder, 1).examples.size(), 1u);
  put(folder / "lambada.jsonl", "{\"text\": \"one more\"}\n");
  EXPECT_NE(load("lambada", folder).about["checksum"], loaded.about["checksum"]);
}

struct BadLine {
  const char *task, *line, *field, *expected;
};

TEST(EvalData, BadLinesAreNamedByFileLineAndField) {
  const std::string good = R"({"text": "fine words"})";
  for (const BadLine& bad : std::vector<BadLine>{
           {"lambada", "{\"text\": 7}", "text", "a text"},
           {"lambada", "{\"other\": 7}", "text", "this field"},
           {"lambada", "{\"text\": \"word\"}", "text", "a blank and a word"},
           {"lambada", "{\"text\": \"ends with blank \"}", "text", "a blank and a word"},
           {"lambada", "{\"text\": \"  \"}", "text", "not blank"},
           {"lambada", "{\"text\": \"\xff\"}", "", "valid UTF-8"},
           {"lambada", "{\"text\": ", "", ""},
           {"lambada", "[]", "text", "this field"},
           {"piqa", R"({"goal": "g", "sol1": "a", "sol2": "b", "label": 2})", "label", "0 to 1"},
           {"piqa", R"({"goal": "g", "sol1": "a", "sol2": "b", "label": -1})", "label", "0 to 1"},
           {"piqa", R"({"goal": "g", "sol1": "a", "sol2": "b", "label": 0.5})", "label", "0 to 1"},
           {"piqa", R"({"goal": "g", "sol1": "", "sol2": "b", "label": 0})", "sol1", "not blank"},
           {"arc_easy", R"({"question": "q", "choices": {"text": ["a", ""], "label": ["A", "B"]}, "answerKey": "A"})",
            "choices.text[1]", "not blank"},
           {"arc_easy", R"({"question": "q", "choices": {"text": ["a"], "label": ["A", "B"]}, "answerKey": "A"})",
            "choices.label", "one for each text"},
           {"arc_easy", R"({"question": "q", "choices": {"text": ["a"], "label": ["A"]}, "answerKey": "C"})",
            "answerKey", "one of choices.label"},
           {"arc_easy", R"({"question": "q", "choices": {"text": [], "label": []}, "answerKey": "C"})", "choices.text",
            "one or more texts"},
           {"arc_easy", R"({"question": "q", "choices": ["a"], "answerKey": "C"})", "choices.text", "this field"},
           {"hellaswag", R"({"activity_label": "a", "ctx_a": "b", "ctx_b": "c", "endings": ["d", "e"], "label": "2"})",
            "label", "0 to 1"},
           {"winogrande", R"({"sentence": "none", "option1": "a", "option2": "b", "answer": "1"})", "sentence",
            "where the option belongs"},
           {"winogrande", R"({"sentence": "a _ b", "option1": "a", "option2": "b", "answer": ""})", "answer", "1 to 2"},
           {"triviaqa", R"({"context": "c", "question": "q", "answers": "a"})", "answers", "one or more texts"},
           {"fda", R"({"text": "t", "value": " "})", "value", "not blank"},
       }) {
    TemporaryDirectory folder;
    const bool is_lambada = std::string(bad.task) == "lambada";
    put(folder / (std::string(bad.task) + ".jsonl"), (is_lambada ? good : "") + "\n" + bad.line + "\n");
    const std::string message = error_of([&] { load(bad.task, folder); });
    const bool is_line = std::string(bad.field).empty();  // the whole of it
    const std::string place = std::string(bad.task) + ".jsonl: line 2" + (is_line ? "" : ": ");
    const std::size_t found = message.find(place);
    ASSERT_NE(found, std::string::npos) << bad.line << "\n" << message;
    EXPECT_EQ(message.compare(found + place.size(), std::string(bad.field).size(), bad.field), 0) << message;
    EXPECT_NE(message.find(bad.expected), std::string::npos) << message;
  }
}

TEST(EvalData, MissingDataSayWhatIsExpectedAndWherePeopleGetThem) {
  TemporaryDirectory folder;
  for (const Task& task : tasks()) {
    if (task.files.empty()) continue;
    for (const std::string& data : {folder.path().string(), std::string()}) {
      const std::string message = error_of([&] { load_task(task, {.data = data}, {}); });
      EXPECT_NE(message.find(std::string(task.files.front()) + ".jsonl"), std::string::npos) << message;
      EXPECT_NE(message.find(task.fields), std::string::npos) << message;
      EXPECT_NE(message.find("huggingface.co/datasets/"), std::string::npos) << message;
      EXPECT_NE(message.find(data.empty() ? "--data" : data), std::string::npos) << message;
    }
  }
  EXPECT_NE(error_of([&] { load_task(find_task("text"), {}, {}); }).find("--text"), std::string::npos);
  EXPECT_NE(error_of([] { find_task("arc_esay"); }).find("arc_easy"), std::string::npos);
  put(folder / "lambada.jsonl", "\n\n");
  EXPECT_NE(error_of([&] { load("lambada", folder); }).find("no examples"), std::string::npos);
}

TEST(EvalData, NamesOfTasksAreUnique) {
  std::set<std::string_view> names;
  for (const Task& task : tasks()) {
    EXPECT_TRUE(names.insert(task.name).second) << task.name;
    EXPECT_NE(task.make == nullptr, task.load == nullptr) << task.name;
    find_metric(task.kind, task.metric);
  }
}

TEST(EvalText, IsThatOfPython) {
  EXPECT_EQ(strip("\xC2\xA0\t a b\x1F\n"), "a b");
  EXPECT_EQ(strip_left("  a "), "a ");
  EXPECT_EQ(strip_right("  a "), "  a");
  EXPECT_EQ(characters("aé東"), 3);
  EXPECT_EQ(pieces_between_blanks(" a  b\n"), 4);  // empty ones at both ends
  EXPECT_EQ(pieces_between_blanks("a b"), 2);
  EXPECT_EQ(capitalized("éCOLE Normale"), "École normale");
  EXPECT_EQ(capitalized(""), "");
  EXPECT_EQ(replace_all("aaa", "aa", "b"), "ba");
}

TEST(EvalText, WikitextIsWrittenAsPeopleDo) {
  EXPECT_EQ(
      detokenized_wikitext("the dogs ' ( 5 @,@ 000 , or 3 @.@ 5 ) \" so \" : x ; y . z @-@ w 's ° C \n = = A = = \n"),
      "the dogs'(5,000, or 3.5) \"so\": x; y. z-w's°C\n== A ==\n");
  const auto pages =
      wikitext_pages(" \r\n = One = \r\n \r\n text \r\n = = Part = = \r\n more\r\n = Two = \r\n end\r\n");
  ASSERT_EQ(pages.size(), 2u);
  EXPECT_EQ(pages[0], " = One = \n \n text \n = = Part = = \n more");
  EXPECT_EQ(pages[1], " = Two = \n end\n");
}

TEST(EvalText, AnswersAreFoundWhateverTheirCase) {
  const std::vector<std::string> answers = {"Zoë", "x.y"};
  EXPECT_TRUE(contains_answer("it is ZOË!", answers));
  EXPECT_TRUE(contains_answer("X.Y", answers));
  EXPECT_FALSE(contains_answer("xay", answers));  // no pattern
  EXPECT_FALSE(contains_answer("", answers));
}

// ---- what a model is given

TEST(EvalRequests, BlanksBelongToTheContinuation) {
  const Bytes bytes;
  const Encoded encoded = encode({Cloze{"A b ", "c"}}, bytes.reader, bytes.options.rules);
  ASSERT_EQ(encoded.requests.size(), 1u);
  EXPECT_EQ(encoded.requests[0].ids, ids_of("A b "));
  EXPECT_EQ(encoded.requests[0].targets, (std::vector<int32_t>{-100, -100, ' ', 'c'}));
  EXPECT_EQ(encoded.tokens(), 2);
  const Encoded alone = encode({Cloze{"", "cd"}}, bytes.reader, bytes.options.rules);
  EXPECT_EQ(alone.requests[0].ids, (std::vector<int32_t>{10, 'c'}));
  EXPECT_EQ(alone.requests[0].targets, (std::vector<int32_t>{'c', 'd'}));
}

TEST(EvalRequests, LongContextsLoseTheirBeginning) {
  const Bytes bytes;
  const std::string context(100, 'x');
  const Encoded encoded = encode({Cloze{"a" + context, " end"}}, bytes.reader, bytes.options.rules);
  EXPECT_TRUE(encoded.cut);
  EXPECT_EQ(encoded.requests[0].ids, ids_of(context.substr(0, 64 - 3) + " en"));
  EXPECT_FALSE(encode({Cloze{context.substr(0, 61), " end"}}, bytes.reader, bytes.options.rules).cut);
  EXPECT_TRUE(encode({Cloze{context.substr(0, 62), " end"}}, bytes.reader, bytes.options.rules).cut);

  const Encoded asked = encode({Question{.prompt = "ab" + context, .answers = {"x"}, .most_prompt_tokens = 100}},
                               bytes.reader, bytes.options.rules);
  EXPECT_TRUE(asked.cut);
  EXPECT_EQ(asked.prompt, ids_of(context));
  EXPECT_FALSE(encode({Question{.prompt = "ab" + context, .answers = {"x"}}}, bytes.reader, bytes.options.rules).cut);
}

TEST(EvalRequests, WhatCannotBeAskedIsNamed) {
  const Bytes bytes;
  const auto message = [&](Example example, ReadingRules rules) {
    example.place = "a.jsonl: line 3";
    return error_of([&] { encode(example, bytes.reader, rules); });
  };
  const auto names = [](const std::string& text, const char* expected) {
    return text.find("a.jsonl: line 3") != text.npos && text.find(expected) != text.npos;
  };
  EXPECT_TRUE(
      names(message({Cloze{"a", std::string(65, 'x')}}, bytes.options.rules), "65 tokens; expected at most 64"));
  EXPECT_TRUE(names(message({Cloze{"", "x"}}, {.max_length = 64, .window = 64, .prefix = {}}), "--prefix-token"));
  EXPECT_TRUE(names(message({Document{"x", 1, 1}}, {.max_length = 64, .window = 64, .prefix = {}}), "--prefix-token"));
  EXPECT_TRUE(names(message({Labelled{{1}, {-100}}}, bytes.options.rules), "at least one"));
}

TEST(EvalRequests, DocumentsAreReadInWindowsThatPredictEveryTokenOnce) {
  const Bytes bytes;
  std::string text;
  for (int i = 0; i < 150; ++i) text += static_cast<char>('0' + i % 75);
  const auto ids = ids_of(text);
  const Encoded encoded = encode({Document{text, 1, 150}}, bytes.reader, bytes.options.rules);
  ASSERT_EQ(encoded.requests.size(), 3u);
  EXPECT_EQ(encoded.requests[0].ids.front(), 10);
  std::vector<int32_t> predicted;
  for (const ScoreRequest& request : encoded.requests) {
    EXPECT_EQ(request.ids.size(), 64u);  // the last one is filled with what comes before
    for (const int32_t id : request.targets) {
      if (id >= 0) predicted.push_back(id);
    }
  }
  EXPECT_EQ(predicted, ids);
  EXPECT_EQ(encoded.requests[1].ids.front(), ids[63]);  // one token of context
  EXPECT_EQ(encoded.requests[2].ids.front(), ids[150 - 64 - 1]);
  EXPECT_EQ(encoded.requests[2].targets[0], -100);
}

TEST(EvalRequests, KeysTellApartWhatIsAskedAndWhatIsRight) {
  const Bytes bytes;
  const auto key = [&](const Example& example) { return encode(example, bytes.reader, bytes.options.rules).key; };
  const Choice choice{.options = {{"a", " b", 1}, {"a", " c", 1}}, .answer = 0};
  Choice other = choice;
  other.answer = 1;
  EXPECT_EQ(key({choice}), key({choice}));
  EXPECT_NE(key({choice}), key({other}));
  const Question question{.prompt = "a", .answers = {"b"}};
  Question later = question;
  later.answers = {"c"};
  EXPECT_NE(key({question}), key({later}));
}

// ---- answers

TEST(EvalAsk, ChoicesAreScoredByTheirLogLikelihoods) {
  Model model = bytes_model();
  Bytes bytes;
  LoadedTask loaded;
  for (int i = 0; i < 12; ++i) {
    const std::string context = "Question " + std::to_string(i) + ":";
    loaded.examples.push_back({Choice{.options = {{context, " yes", 3}, {context, " perhaps", 7}, {context, " no", 2}},
                                      .answer = static_cast<std::size_t>(i % 3)}});
  }
  AskProgress last;
  const TaskResult result = ask(model, find_task("arc_easy"), loaded, bytes.reader, bytes.options, nullptr,
                                [&](const AskProgress& progress) { last = progress; });
  ASSERT_EQ(result.examples.size(), 12u);
  for (std::size_t i = 0; i < 12; ++i) {
    const Choice& choice = std::get<Choice>(loaded.examples[i].ask);
    std::vector<double> expected, normalized;
    for (const Option& option : choice.options) {
      expected.push_back(log_likelihood(model, ids_of(option.context), ids_of(option.continuation)));
      normalized.push_back(expected.back() / static_cast<double>(option.length));
    }
    const auto& said = result.examples[i].said["log_likelihoods"];
    for (std::size_t k = 0; k < 3; ++k) EXPECT_NEAR(said[k].get<double>(), expected[k], 1e-4);
    const auto best = [&](const std::vector<double>& values) {
      return static_cast<std::size_t>(std::max_element(values.begin(), values.end()) - values.begin());
    };
    EXPECT_EQ(result.examples[i].scores.at("acc"), best(expected) == choice.answer ? 1.0 : 0.0);
    EXPECT_EQ(result.examples[i].scores.at("acc_norm"), best(normalized) == choice.answer ? 1.0 : 0.0);
  }
  EXPECT_EQ(last.examples, 12);
  EXPECT_EQ(last.tokens, last.all_tokens);
  EXPECT_EQ(result.tokens, last.all_tokens);
  // Contexts are read once, and of the choices all but the last token.
  int64_t tokens = 0;
  for (int i = 0; i < 12; ++i) tokens += std::ssize(std::string("Question " + std::to_string(i) + ":")) + 3 + 7 + 2;
  EXPECT_LE(result.tokens, tokens);
}

TEST(EvalAsk, DocumentsAndTheirCurves) {
  Model model = bytes_model();
  Bytes bytes;
  std::string text;
  for (int i = 0; i < 150; ++i) text += static_cast<char>('a' + i * i % 26);
  LoadedTask loaded;
  loaded.examples.push_back({Document{text, 30, 150}});
  const TaskResult result = ask(model, find_task("wikitext"), loaded, bytes.reader, bytes.options, nullptr);
  const auto ids = ids_of(text);
  const auto part = [&](int64_t begin, int64_t end) {
    return std::vector<int32_t>(ids.begin() + begin, ids.begin() + end);
  };
  const double expected = log_likelihood(model, {10}, part(0, 64)) +
                          log_likelihood(model, part(63, 64), part(64, 128)) +
                          log_likelihood(model, part(85, 128), part(128, 150));
  EXPECT_NEAR(result.examples[0].scores.at("log_likelihood"), expected, 1e-3);
  const auto value = [&](const char* name) {
    return estimate(find_metric(Kind::kDocument, name), result.examples).value;
  };
  EXPECT_NEAR(value("word_perplexity"), std::exp(-expected / 30), 1e-3 * std::exp(-expected / 30));
  EXPECT_NEAR(value("bits_per_byte"), -expected / 150 / std::log(2), 1e-4);
  EXPECT_TRUE(std::isnan(estimate(find_metric(Kind::kDocument, "bits_per_byte"), result.examples).stderr_));

  double loss = 0;
  int64_t tokens = 0, end = 1;
  for (const CurvePoint& point : curve(result.examples)) {
    EXPECT_GE(point.begin, end);
    end = point.end;
    loss += point.loss * static_cast<double>(point.tokens);
    tokens += point.tokens;
    if (point.begin == 1) {
      EXPECT_EQ(point.tokens, 2);  // of two windows; the last one has more before it
    }
  }
  EXPECT_EQ(tokens, 150);
  EXPECT_NEAR(loss, -expected, 1e-3);
}

TEST(EvalAsk, CurveIntervalsCoverEveryPlaceOnce) {
  for (int64_t place = 1; place < 5000; ++place) {
    const int64_t interval = curve_interval(place);
    ASSERT_LE(curve_begin(interval), place);
    ASSERT_GT(curve_begin(interval + 1), place);
  }
  EXPECT_EQ(curve_begin(curve_interval(1024)), 1024);
}

TEST(EvalAsk, QuestionsEndAtAnAnswerAStopOrTheirLength) {
  Model model = bytes_model();
  Bytes bytes;
  std::vector<float> embeddings = model.parameter("model.embeddings.weight");  // tied to the head
  for (int64_t id = 0; id < 256; ++id) {                                       // that it says letters only
    if (id < 'a' || id > 'z') std::fill_n(embeddings.begin() + id * 32, 32, 0.0f);
  }
  model.set_parameter("model.embeddings.weight", embeddings);
  const std::string prompt = "say it", said = said_greedily(model, prompt, 12);
  ASSERT_EQ(said.size(), 12u);
  ASSERT_NE(said[0], said[3]);
  LoadedTask loaded;
  loaded.examples.push_back({Question{.prompt = prompt, .answers = {"never", said.substr(3, 3)}, .max_tokens = 12}});
  loaded.examples.push_back({Question{.prompt = prompt, .answers = {"never said"}, .max_tokens = 12}});
  loaded.examples.push_back(
      {Question{.prompt = prompt, .answers = {said.substr(0, 11)}, .stops = {said.substr(4, 2)}, .max_tokens = 12}});
  loaded.examples.push_back({Question{.prompt = prompt, .answers = {said.substr(2, 8)}, .max_tokens = 5}});
  const TaskResult result = ask(model, find_task("fda"), loaded, bytes.reader, bytes.options, nullptr);
  const auto prediction = [&](std::size_t i) { return result.examples[i].said["prediction"].get<std::string>(); };
  EXPECT_EQ(result.examples[0].scores.at("contains"), 1.0);
  EXPECT_LE(prediction(0).size(), 6u);
  EXPECT_EQ(prediction(0), said.substr(0, prediction(0).size()));
  EXPECT_EQ(result.examples[1].scores.at("contains"), 0.0);
  EXPECT_EQ(prediction(1), said);
  EXPECT_EQ(result.examples[2].scores.at("contains"), 0.0);
  EXPECT_EQ(prediction(2), said.substr(0, said.find(said.substr(4, 2))));
  EXPECT_EQ(result.examples[3].scores.at("contains"), 0.0);
  EXPECT_EQ(prediction(3), said.substr(0, 5));

  bytes.options.end_ids = {static_cast<unsigned char>(said[3])};
  const TaskResult ended = ask(model, find_task("fda"), loaded, bytes.reader, bytes.options, nullptr);
  EXPECT_EQ(ended.examples[1].said["prediction"], said.substr(0, said.find(said[3])));
}

TEST(EvalAsk, LabelsCountByTheirShare) {
  Model model = bytes_model();
  const std::vector<int32_t> ids = {5, 6, 7, 8};
  std::vector<float> logits(4 * 256);
  const int64_t offsets[] = {0, 4};
  model.logits(ids, offsets, logits.data());
  std::vector<int32_t> greedy;
  for (int i = 0; i < 4; ++i) {
    const auto row = logits.begin() + i * 256;
    greedy.push_back(static_cast<int32_t>(std::max_element(row, row + 256) - row));
  }
  LoadedTask loaded;
  loaded.examples.push_back(
      {Labelled{.ids = ids, .targets = {-100, greedy[1], -100, (greedy[3] + 1) % 256}, .chance = 0.2}});
  const TaskResult result =
      ask(model, find_task("parity"), loaded, {.tokenizer = nullptr, .vocab_size = 256}, {}, nullptr);
  EXPECT_EQ(result.examples[0].scores.at("acc"), 0.5);
  EXPECT_NEAR(result.examples[0].scores.at("score"), 0.3 / 0.8, 1e-12);
}

TEST(EvalAsk, WhatIsNoNumberIsNeverCountedAsWrong) {
  Model model = bytes_model();
  std::vector<float> embeddings = model.parameter("model.embeddings.weight");
  for (int64_t i = 'q' * 32; i < ('q' + 1) * 32; ++i) embeddings[i] = std::numeric_limits<float>::quiet_NaN();
  model.set_parameter("model.embeddings.weight", embeddings);
  Bytes bytes;
  LoadedTask loaded;
  loaded.examples.push_back({Cloze{"a q b", " c"}});
  const std::string scored =
      error_of([&] { ask(model, find_task("lambada"), loaded, bytes.reader, bytes.options, nullptr); });
  EXPECT_NE(scored.find("lambada"), std::string::npos) << scored;
  EXPECT_NE(scored.find("not finite"), std::string::npos) << scored;
  loaded.examples = {{Question{.prompt = "a q b", .answers = {"c"}}}};
  const std::string said =
      error_of([&] { ask(model, find_task("fda"), loaded, bytes.reader, bytes.options, nullptr); });
  EXPECT_NE(said.find("fda"), std::string::npos) << said;
  EXPECT_NE(said.find("not finite"), std::string::npos) << said;
}

TEST(EvalAsk, TextNeedsATokenizer) {
  Model model = bytes_model();
  LoadedTask loaded;
  loaded.examples.push_back({Cloze{"a", " c"}});
  EXPECT_NE(error_of([&] { ask(model, find_task("lambada"), loaded, {}, {}, nullptr); }).find("--tokenizer"),
            std::string::npos);
}

// ---- stopped evaluations

class EvalResume : public testing::Test {
 protected:
  EvalResume() {
    for (int i = 0; i < 9; ++i) loaded_.examples.push_back({Cloze{"Example " + std::to_string(i), " end"}});
  }

  TaskResult evaluate(int64_t stop_after = 0) {
    SavedExamples saved(folder_ / "m.lambada.jsonl", {{"fingerprint", "f"}});
    int64_t done = 0;
    return ask(model_, find_task("lambada"), loaded_, bytes_.reader, bytes_.options, &saved,
               [&](const AskProgress& progress) {
                 done = progress.examples;
                 if (stop_after > 0 && done >= stop_after) throw Error("stopped");
               });
  }

  TemporaryDirectory folder_;
  Model model_ = bytes_model();
  Bytes bytes_;
  LoadedTask loaded_;
};

TEST_F(EvalResume, GoesOnWhereItStopped) {
  const TaskResult whole = evaluate();
  EXPECT_EQ(whole.resumed, 0);
  std::filesystem::remove(folder_ / "m.lambada.jsonl");
  EXPECT_EQ(error_of([&] { evaluate(4); }), "stopped");
  const std::string before = contents(folder_ / "m.lambada.jsonl");
  put(folder_ / "m.lambada.jsonl", before + "{\"example\": 8, \"ke");  // the power failed here
  const TaskResult rest = evaluate();
  EXPECT_EQ(rest.resumed, 4);
  EXPECT_LT(rest.tokens, whole.tokens);
  for (std::size_t i = 0; i < 9; ++i) {
    EXPECT_NEAR(rest.examples[i].scores.at("log_likelihood"), whole.examples[i].scores.at("log_likelihood"), 1e-4);
  }
  const TaskResult nothing = evaluate();
  EXPECT_EQ(nothing.resumed, 9);
  EXPECT_EQ(nothing.tokens, 0);
  loaded_.examples.push_back({Cloze{"One", " more"}});  // as with a larger --limit
  EXPECT_EQ(evaluate().resumed, 9);
}

TEST_F(EvalResume, ResultsOfSomethingElseAreRefused) {
  evaluate();
  const auto other = [&] { SavedExamples(folder_ / "m.lambada.jsonl", {{"fingerprint", "g"}}); };
  const std::string message = error_of(other);
  EXPECT_NE(message.find("fingerprint was \"f\" and is \"g\""), std::string::npos) << message;
  loaded_.examples[3] = {Cloze{"Changed", " end"}};
  EXPECT_NE(error_of([&] { evaluate(); }).find("example 3"), std::string::npos);
  put(folder_ / "m.lambada.jsonl", "{\"some\": \"other file\"}\n");
  EXPECT_NE(error_of([&] { evaluate(); }).find("line 1"), std::string::npos);
  EXPECT_EQ(contents(folder_ / "m.lambada.jsonl"), "{\"some\": \"other file\"}\n");
}

// ---- numbers

std::vector<ExampleResult> results(const std::string& score, const std::vector<double>& values) {
  std::vector<ExampleResult> examples;
  for (const double value : values) {
    examples.push_back({});
    examples.back().scores = {{score, value}, {"acc_norm", value}, {"log_likelihood", -value}};
  }
  return examples;
}

TEST(EvalNumbers, ErrorsAreThoseOfTheMean) {
  const Metric acc = find_metric(Kind::kChoice, "acc");
  const Estimate half = estimate(acc, results("acc", {1, 0, 1, 0}));
  EXPECT_DOUBLE_EQ(half.value, 0.5);
  EXPECT_NEAR(half.stderr_, std::sqrt((4 * 0.25 / 3) / 4), 1e-12);  // the sample's deviation over the root of n
  // exp of the mean loss: its error is that of the mean times the value.
  const Estimate perplexity = estimate(find_metric(Kind::kCloze, "perplexity"), results("acc", {1, 2, 3}));
  EXPECT_NEAR(perplexity.value, std::exp(2), 1e-9);
  EXPECT_NEAR(perplexity.stderr_, std::exp(2) * std::sqrt(1.0 / 3), 1e-9);
}

TEST(EvalNumbers, DifferencesArePaired) {
  const Metric acc = find_metric(Kind::kChoice, "acc");
  // 10 examples; the second is right on two that the first misses, and wrong on none that it has.
  const auto a = results("acc", {1, 1, 1, 1, 1, 0, 0, 0, 0, 0}), b = results("acc", {1, 1, 1, 1, 1, 1, 1, 0, 0, 0});
  const Difference difference = paired_difference(acc, a, b);
  EXPECT_NEAR(difference.value, 0.2, 1e-12);
  EXPECT_NEAR(difference.stderr_, std::sqrt((10 * 0.2 * 0.8 / 9) / 10), 1e-12);
  EXPECT_NEAR(difference.p, 0.5, 1e-12);  // two coins, both heads or both tails
  EXPECT_LT(difference.stderr_, estimate(acc, a).stderr_);
  EXPECT_EQ(paired_difference(acc, a, a).p, 1);
  const Difference losses =
      paired_difference(find_metric(Kind::kCloze, "perplexity"), results("acc", {1, 2, 3}), results("acc", {2, 3, 4}));
  EXPECT_NEAR(losses.value, std::exp(3) - std::exp(2), 1e-9);
}

TEST(EvalNumbers, McNemarIsExact) {
  EXPECT_EQ(mcnemar_p(0, 0), 1);
  EXPECT_NEAR(mcnemar_p(0, 5), 2.0 / 32, 1e-12);
  EXPECT_NEAR(mcnemar_p(5, 0), 2.0 / 32, 1e-12);
  EXPECT_NEAR(mcnemar_p(1, 4), 2.0 * (1 + 5) / 32, 1e-12);
  EXPECT_EQ(mcnemar_p(3, 3), 1);
  EXPECT_LT(mcnemar_p(1000, 1200), 1e-4);
}

TEST(EvalNumbers, PairsAreARowAndItsPreconditionedForm) {
  const auto pairs = [](const std::vector<const char*>& names) {
    std::vector<Spec> specs;
    for (const char* name : names) specs.push_back(find_row(name).spec);
    return pairs_of(specs);
  };
  using Pairs = std::vector<std::pair<std::size_t, std::size_t>>;
  EXPECT_EQ(pairs({"delta_net", "pdn", "gdn", "pgdn", "kda", "pkda"}), (Pairs{{0, 1}, {2, 3}, {4, 5}}));
  EXPECT_EQ(pairs({"gdn", "pdn", "kda"}), Pairs{});
  EXPECT_EQ(pairs({"gdn", "gdn"}), (Pairs{{0, 1}}));
  EXPECT_EQ(pairs({"gdn"}), Pairs{});
}

// ---- tables

std::vector<ModelReport> two_reports() {
  std::vector<ModelReport> reports = {{.name = "gdn_a", .spec = find_row("gdn").spec, .about = {{"row", "gdn"}}},
                                      {.name = "pgdn|b", .spec = find_row("pgdn").spec, .about = {{"row", "pgdn"}}}};
  const auto add = [&](std::size_t model, const char* task, std::vector<ExampleResult> examples) {
    TaskResult result;
    result.examples = std::move(examples);
    reports[model].tasks.emplace_back(&find_task(task), std::move(result));
  };
  for (std::size_t model = 0; model < 2; ++model) {
    const double right = model == 0 ? 0 : 1;
    add(model, "piqa", results("acc", {1, 0, right, 0}));
    add(model, "lambada", results("acc", {right, 1}));
    auto needles = results("contains", {1, right, 0, 0});
    const double lengths[] = {512, 512, 1024, 1024};
    for (std::size_t i = 0; i < 4; ++i) needles[i].tags = {{"length", lengths[i]}, {"depth", 0}, {"depth_from", 0}};
    add(model, "s_niah_1", needles);
  }
  return reports;
}

TEST(EvalTables, AreInTheOrderOfThePaper) {
  const auto tables = result_tables(two_reports());
  ASSERT_EQ(tables.size(), 2u);
  std::vector<std::string> titles;
  for (const Column& column : tables[0].columns) titles.push_back(column.title + " " + column.unit);
  EXPECT_EQ(titles, (std::vector<std::string>{"LAMB ppl", "Lamb. acc", "PIQA acc", "Avg acc"}));
  EXPECT_FALSE(tables[0].columns[0].higher_is_better);
  EXPECT_NEAR(tables[0].rows[0][3].value, (50 + 25) / 2.0, 1e-9);
  EXPECT_NEAR(tables[0].rows[1][3].value, (100 + 50) / 2.0, 1e-9);
  EXPECT_TRUE(tables[0].rows[1][3].best);
  EXPECT_FALSE(tables[0].rows[0][3].best);
  EXPECT_TRUE(tables[0].rows[0][0].best);  // the lower perplexity
  titles.clear();
  for (const Column& column : tables[1].columns) titles.push_back(column.group + " " + column.title);
  EXPECT_EQ(titles, (std::vector<std::string>{"S-NIAH-1 512", "S-NIAH-1 1K"}));
  EXPECT_FALSE(tables[1].rows[0][1].best || tables[1].rows[1][1].best);  // both the same
}

TEST(EvalTables, ScoresAboveChanceAreNamedSo) {
  std::vector<ModelReport> reports = {{.name = "gdn", .spec = find_row("gdn").spec, .about = {}}};
  TaskResult result;
  result.examples = results("score", {1, -1});
  for (ExampleResult& example : result.examples) example.tags = {{"length", 40}};
  reports[0].tasks.emplace_back(&find_task("parity"), std::move(result));
  EXPECT_EQ(result_tables(reports).at(0).columns.at(0).unit, "score");
}

TEST(EvalTables, AreTextOfEachFormat) {
  const auto tables = result_tables(two_reports());
  const std::string markdown = to_markdown(tables[0]);
  EXPECT_NE(markdown.find("| pgdn\\|b |"), std::string::npos) << markdown;
  EXPECT_NE(markdown.find("**75.00 ±"), std::string::npos) << markdown;
  const std::string latex = to_latex(tables[1]);
  EXPECT_NE(latex.find("\\multicolumn{2}{c}{S-NIAH-1}"), std::string::npos) << latex;
  EXPECT_NE(latex.find("gdn\\_a & 50.00 & 0.00 \\\\"), std::string::npos) << latex;
  EXPECT_NE(latex.find("\\textbf{100.00}"), std::string::npos) << latex;
}

TEST(EvalTables, JsonHoldsEverythingAndNullForWhatIsUnknown) {
  auto reports = two_reports();
  reports[0].tasks[0].second.examples.resize(1);
  const auto json = to_json(reports);
  EXPECT_EQ(json["format"], "deltanet eval 1");
  const auto& piqa = json["models"][0]["tasks"]["piqa"];
  EXPECT_EQ(piqa["metrics"]["acc"]["value"], 1.0);
  EXPECT_TRUE(piqa["metrics"]["acc"]["stderr"].is_null());
  const auto& cells = json["models"][1]["tasks"]["s_niah_1"]["breakdowns"][0]["cells"];
  EXPECT_EQ(cells[0]["length"], 512);
  EXPECT_EQ(cells[0]["value"], 1.0);
  EXPECT_EQ(cells[0]["examples"], 2);
  std::set<std::string> tasks;
  for (const auto& difference : json["differences"]) tasks.insert(difference["task"]);
  EXPECT_EQ(tasks, (std::set<std::string>{"lambada", "s_niah_1"}));  // not of other examples
}

}  // namespace
}  // namespace deltanet::test
