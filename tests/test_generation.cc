// How a session goes on: what may be chosen, what a repetition penalty remembers, and what an end from outside leaves.

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/interrupt.h"
#include "deltanet/error.h"
#include "deltanet/model.h"
#include "temporary_directory.h"

namespace deltanet::test {
namespace {

using Ids = std::vector<int32_t>;

constexpr int32_t kVocab = 40;

Model make_model(const std::string& more = R"(, "num_hidden_layers": 2)") {
  return Model::from_config(R"({"model_type": "dgps", "row": "pgdn", "hidden_size": 32,
      "num_heads": 2, "head_dim": 16, "expand_v": 1.0, "vocab_size": 40, "intermediate_size": 48,
      "tie_word_embeddings": true, "initializer_range": 0.15)" +
                                more + "}",
                            1, {.threads = 2});
}

Ids ids_of(int count, int seed) {
  Ids ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>((i * i + seed * 7 + i) % kVocab));
  return ids;
}

std::vector<Ids> say(Session& session, const std::vector<Ids>& prompts, const GenerateOptions& options) {
  std::vector<Ids> said(prompts.size());
  session.generate(prompts, options, [&](int64_t n, int32_t id) {
    said[n].push_back(id);
    return true;
  });
  return said;
}

std::vector<float> read(Session& session, const std::vector<Ids>& prompts) {
  std::vector<float> logits(prompts.size() * kVocab);
  session.read(prompts, logits.data());
  return logits;
}

Ids stream(Session& session, const Ids& prompt, const GenerateOptions& options) {
  Ids said;
  TokenStream tokens = session.stream(prompt, options);
  while (const auto id = tokens.next()) said.push_back(*id);
  return said;
}

// ---- tokens that the tokenizer does not have

TEST(Generation, IdsBeyondTheTokenizerAreNeverChosen) {
  Model model = make_model();
  for (const double temperature : {0.0, 5.0}) {
    const GenerateOptions all{.max_tokens = 60, .sampling = {.temperature = temperature, .repetition_penalty = 1.3}};
    Session free = model.start();
    const Ids said = say(free, {ids_of(9, 1)}, all).front();
    const int32_t largest = *std::max_element(said.begin(), said.end());
    GenerateOptions fewer = all;
    fewer.vocab_size = largest;  // of what was said, the largest id is one too many
    for (const bool streams : {false, true}) {
      Session session = model.start();
      const Ids now = streams ? stream(session, ids_of(9, 1), fewer) : say(session, {ids_of(9, 1)}, fewer).front();
      EXPECT_EQ(now.size(), 60u);
      EXPECT_LT(*std::max_element(now.begin(), now.end()), largest);
    }
  }
}

TEST(Generation, ATokenizerOfAnotherModelIsRefused) {
  Model model = make_model();
  Session session = model.start();
  const GenerateOptions more{.vocab_size = kVocab + 1};
  for (const auto& call : {std::function<void()>([&] { say(session, {ids_of(3, 1)}, more); }),
                           std::function<void()>([&] { stream(session, ids_of(3, 1), more); })}) {
    EXPECT_EQ(error_of(call),
              "[generate] vocab_size: given a tokenizer of 41 tokens; expected at most 40, the vocabulary of the "
              "model: it belongs to another model");
  }
}

// ---- repetition penalty

// So large that no token comes twice while there are others.
constexpr double kNeverAgain = 1e6;

TEST(Generation, ARepetitionPenaltyRemembersEarlierCalls) {
  Model model = make_model();
  const GenerateOptions options{.max_tokens = 5, .sampling = {.repetition_penalty = kNeverAgain}};
  const TemporaryDirectory directory;
  const Ids prompt = {1, 2, 3};
  enum { kInOneCall, kAfterGenerate, kAfterRead, kInAStream, kFromAFile, kInABatch, kWays };
  std::vector<Ids> ways;
  for (int way = 0; way < kWays; ++way) {
    Session session = model.start(way == kInABatch ? 2 : 1);
    Ids said;
    if (way == kInOneCall) {
      GenerateOptions longer = options;
      longer.max_tokens = 10;
      said = say(session, {prompt}, longer).front();
    } else if (way == kInABatch) {  // the other sequence ends early, so that this one moves
      for (int call = 0; call < 2; ++call) {
        session.generate({{call == 0 ? Ids{9} : Ids{}, call == 0 ? prompt : Ids{}}}, options,
                         [&](int64_t n, int32_t id) {
                           if (n == 1) said.push_back(id);
                           return n == 1;
                         });
      }
    } else {
      if (way == kAfterRead) {
        read(session, {Ids{1, 2}});
        said = say(session, {Ids{3}}, options).front();
      } else if (way == kInAStream) {
        said = stream(session, prompt, options);
      } else {
        said = say(session, {prompt}, options).front();
      }
      if (way == kFromAFile) {
        session.save(directory / "state");
        session = model.load_session(directory / "state");
      }
      const Ids more = way == kInAStream ? stream(session, {}, options) : say(session, {Ids{}}, options).front();
      said.insert(said.end(), more.begin(), more.end());
    }
    EXPECT_EQ(said.size(), 10u);
    Ids all = prompt;
    all.insert(all.end(), said.begin(), said.end());
    std::sort(all.begin(), all.end());
    EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end()) << "a token came twice, way " << way;
    ways.push_back(said);
  }
  for (const Ids& said : ways) EXPECT_EQ(said, ways.front());
}

TEST(Generation, ResetForgetsWhatWasPenalized) {
  Model model = make_model();
  const GenerateOptions options{.max_tokens = 5, .sampling = {.repetition_penalty = kNeverAgain}};
  Session session = model.start();
  const Ids said = say(session, {{1, 2, 3}}, options).front();
  session.reset();
  EXPECT_EQ(say(session, {{1, 2, 3}}, options).front(), said);
}

// ---- ends

TEST(Generation, AnExceptionEndsTheCallAndLeavesTheSession) {
  Model model = make_model();
  const std::vector<Ids> prompts = {ids_of(5, 1), ids_of(7, 2), ids_of(4, 3)};
  const GenerateOptions options{.max_tokens = 8};
  Session whole = model.start(3);
  const std::vector<Ids> expected = say(whole, prompts, options);

  Session session = model.start(3);
  std::vector<Ids> said(3);
  const auto until_seven = [&](int64_t n, int32_t id) {
    said[n].push_back(id);
    if (n == 0 && said[0].size() == 2) return false;  // leaves the batch before the exception
    if (n == 1 && said[1].size() == 4) throw std::runtime_error("enough");
    return true;
  };
  EXPECT_THROW(session.generate(prompts, options, until_seven), std::runtime_error);
  EXPECT_EQ(said[0].size(), 2u);
  EXPECT_EQ(said[1].size(), 4u);
  EXPECT_EQ(said[2].size(), 3u) << "told of a token after the exception";
  said[2].push_back(expected[2][3]);  // chosen in the same step, though not told
  for (std::size_t n = 0; n < 3; ++n) {
    Session alone = model.start();
    const Ids all = say(alone, {prompts[n]}, {.max_tokens = 8}).front();
    EXPECT_EQ(Ids(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(said[n].size())), said[n]);
  }
  const std::vector<Ids> rest = say(session, std::vector<Ids>(3), {.max_tokens = 4});
  for (std::size_t n = 1; n < 3; ++n) {
    EXPECT_EQ(rest[n], Ids(expected[n].begin() + 4, expected[n].end())) << "sequence " << n;
  }
  EXPECT_EQ(rest[0], Ids(expected[0].begin() + 2, expected[0].begin() + 6));
}

TEST(Generation, WhatWasNotReadCanBeDropped) {
  Model model = make_model();
  Session session = model.start(), expected = model.start();
  const Ids said = say(session, {ids_of(5, 1)}, {.max_tokens = 3}).front();
  session.drop_unread();
  EXPECT_EQ(error_of([&] { say(session, {Ids{}}, {}); }),
            "[generate] prompts[0]: is empty; expected at least one token");
  Ids before = ids_of(5, 1);
  read(expected, {before});
  for (int i = 0; i < 2; ++i) read(expected, {{said[static_cast<std::size_t>(i)]}});
  EXPECT_EQ(read(session, {{7}}), read(expected, {{7}}));
}

// ---- interrupts

// Asked for the n-th time, it says that the call is to end.
std::function<bool()> after_asking(int n) {
  return [n]() mutable { return n-- == 0; };
}

TEST(Interrupts, LeaveTheStateBeforeTheCall) {
  // Of the recurrence, and of attention with a window and without.
  Model model = make_model(R"(, "num_hidden_layers": 3, "attn": [{"layers": [0], "num_heads": 2, "window_size": 5},
                                                                 {"layers": [2], "num_heads": 4}])");
  const Ids long_prompt = ids_of(60'000, 3);
  for (const bool is_fresh : {true, false}) {
    for (const int sequences : {1, 2}) {
      const std::vector<Ids> prompts(static_cast<std::size_t>(sequences), long_prompt);
      const std::vector<Ids> first(static_cast<std::size_t>(sequences), ids_of(20, 1));
      const std::vector<Ids> next(static_cast<std::size_t>(sequences), ids_of(20, 2));
      Session session = model.start(sequences), expected = model.start(sequences);
      if (!is_fresh) {
        EXPECT_EQ(say(session, first, {.max_tokens = 3}), say(expected, first, {.max_tokens = 3}));
      }
      {
        const Interrupt interrupt(after_asking(1));
        EXPECT_THROW(read(session, prompts), Interrupted);
      }
      // The same bits, with the token that was not read yet.
      EXPECT_EQ(read(session, next), read(expected, next)) << is_fresh << sequences;
    }
  }
}

TEST(Interrupts, EndEveryLongCallSoon) {
  Model model = make_model();
  const Ids ids = ids_of(200'000, 3);
  Ids targets(ids.begin() + 1, ids.end());
  targets.push_back(-100);
  const int64_t offsets[] = {0, static_cast<int64_t>(ids.size())};
  std::vector<double> log_prob(ids.size());
  const auto greedy = std::make_unique<bool[]>(ids.size());
  Session session = model.start();
  const std::vector<std::function<void()>> calls = {
      [&] { model.loss(ids, targets, offsets); },
      [&] { model.loss_and_gradients(ids, targets, offsets); },
      [&] { model.log_probs(ids, targets, offsets, log_prob.data(), greedy.get()); },
      [&] { read(session, {ids}); },
      [&] { say(session, {{1}}, {.max_tokens = 1'000'000}); },
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    int asked = 0;
    const Interrupt interrupt([&] { return ++asked == 2; });
    EXPECT_THROW(calls[i](), Interrupted) << "call " << i;
    EXPECT_EQ(asked, 2) << "asked again after it was to end";
  }
  EXPECT_NO_THROW(read(session, {{1}}));  // nothing of an Interrupt is left
}

TEST(Interrupts, AreNotAskedForNothing) {
  const Interrupt interrupt([]() -> bool { throw std::runtime_error("asked at once"); });
  for (int i = 0; i < 1000; ++i) check_interrupt();
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(3 * Interrupt::kMilliseconds)) {
  }
  EXPECT_THROW(check_interrupt(), std::runtime_error);
  const InterruptScope none(nullptr);
  EXPECT_NO_THROW(check_interrupt());
}

}  // namespace
}  // namespace deltanet::test
