// Model::score and Model::generate of many sequences: what they share is read once, and nothing else depends on it.

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <random>
#include <set>

#include "deltanet/error.h"
#include "deltanet/model.h"
#include "model/generation/prefix_tree.h"
#include "model_fixture.h"
#include "sanitized.h"

namespace deltanet {
namespace {

using Ids = std::vector<int32_t>;

// Sequences that share beginnings of random lengths with one before; some are the same, some are the beginning of one.
std::vector<Ids> family(std::mt19937& random, int count, int32_t vocab) {
  std::vector<Ids> all;
  const auto below = [&](std::size_t n) { return random() % n; };
  for (int i = 0; i < count; ++i) {
    Ids ids;
    if (i > 0) {
      const Ids& model = all[below(all.size())];
      ids.assign(model.begin(), model.begin() + static_cast<std::ptrdiff_t>(below(model.size() + 1)));
    }
    const std::size_t more = below(30) + (ids.empty() ? 1 : 0);
    for (std::size_t k = 0; k < more; ++k) ids.push_back(static_cast<int32_t>(below(vocab)));
    all.push_back(ids);
  }
  return all;
}

// Walks the tree: what the pieces above and in a node say of each of its sequences.
void check_nodes(const PrefixTree& tree, const std::vector<PrefixNode>& nodes, int64_t begin,
                 const std::vector<Ids>& sequences, int64_t least, std::multiset<int64_t>& ended) {
  for (const PrefixNode& node : nodes) {
    ASSERT_EQ(node.begin, begin);
    ASSERT_LT(node.begin, node.end);
    ASSERT_LT(node.first, node.last);
    const Ids& front = sequences[tree.order[node.first]];
    int64_t ends_here = 0;
    for (int64_t place = node.first; place < node.last; ++place) {
      const Ids& ids = sequences[tree.order[place]];
      ASSERT_GE(static_cast<int64_t>(ids.size()), node.end);
      ASSERT_TRUE(std::equal(front.begin(), front.begin() + node.end, ids.begin()));
      if (static_cast<int64_t>(ids.size()) != node.end) continue;
      ended.insert(tree.order[place]);
      EXPECT_EQ(place, node.first + ends_here++);  // they come first
    }
    if (node.children.empty()) {
      EXPECT_EQ(ends_here, node.last - node.first);
    } else {
      EXPECT_GE(node.end - node.begin, least);
    }
    int64_t below = ends_here;
    for (const PrefixNode& child : node.children) below += child.last - child.first;
    EXPECT_EQ(below, node.last - node.first);
    check_nodes(tree, node.children, node.end, sequences, least, ended);
  }
}

TEST(PrefixTree, HoldsEverySequenceOnce) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 60; ++trial) {
    const auto sequences = family(random, 1 + trial, trial % 2 ? 50 : 2);
    const std::vector<std::span<const int32_t>> spans(sequences.begin(), sequences.end());
    for (const int64_t least : {1, 8}) {
      const PrefixTree tree = prefix_tree(spans, least);
      std::multiset<int64_t> ended;
      check_nodes(tree, tree.roots, 0, sequences, least, ended);
      EXPECT_EQ(ended.size(), sequences.size());
      EXPECT_EQ(std::set<int64_t>(ended.begin(), ended.end()).size(), sequences.size());
      if (least > 1) continue;
      std::set<Ids> beginnings;  // each of them is a token of the tree
      for (const Ids& ids : sequences) {
        for (std::size_t n = 1; n <= ids.size(); ++n)
          beginnings.insert({ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n)});
      }
      EXPECT_EQ(tree.tokens(), static_cast<int64_t>(beginnings.size()));
    }
  }
}

TEST(PrefixTree, OfNothingIsEmpty) { EXPECT_EQ(prefix_tree({}, 8).tokens(), 0); }

// ---- scoring

class PrefixBatches : public testing::TestWithParam<std::filesystem::path> {
 protected:
  PrefixBatches() : model_(Model::load(GetParam().string())) {}

  std::vector<ScoreRequest> requests(int count) {
    std::mt19937 random(3);
    std::vector<ScoreRequest> all;
    for (Ids& ids : family(random, count, static_cast<int32_t>(model_.vocab_size()))) {
      Ids targets;
      for (std::size_t i = 0; i < ids.size(); ++i) {
        targets.push_back(random() % 3 ? -100 : static_cast<int32_t>(random() % model_.vocab_size()));
      }
      all.push_back({ids, targets});
    }
    // Some targets are what the model would say.
    for (ScoreRequest& request : all) {
      std::vector<float> logits(request.ids.size() * static_cast<std::size_t>(model_.vocab_size()));
      const int64_t offsets[] = {0, static_cast<int64_t>(request.ids.size())};
      model_.logits(request.ids, offsets, logits.data());
      const auto last = logits.end() - model_.vocab_size();
      request.targets.back() = static_cast<int32_t>(std::max_element(last, logits.end()) - last);
    }
    return all;
  }

  Model model_;
};

TEST_P(PrefixBatches, ScoresAreThoseOfEachSequenceAlone) {
  const auto all = requests(25);
  for (const auto& [tokens, state_bytes] : {std::pair<int64_t, int64_t>{4096, 1 << 29}, {7, 1 << 29}, {64, 1}}) {
    std::vector<int> seen(all.size());
    int64_t read = 0, total = 0, greedy_ones = 0;
    BatchOptions options{.tokens = tokens, .state_bytes = state_bytes};
    options.on_read = [&](int64_t count, int64_t of) { read += count, total = of; };
    model_.score(all, options, [&](const Scored& scored) {
      ++seen[scored.sequence];
      const ScoreRequest& request = all[scored.sequence];
      const auto size = static_cast<int64_t>(request.ids.size());
      const int64_t offsets[] = {0, size};
      std::vector<double> log_prob(request.ids.size());
      const auto greedy = std::make_unique<bool[]>(request.ids.size());
      model_.log_probs(request.ids, request.targets, offsets, log_prob.data(), greedy.get());
      std::size_t next = 0;
      for (int64_t i = 0; i < size; ++i) {
        if (request.targets[i] == -100) continue;
        ASSERT_LT(next, scored.log_probs.size());
        EXPECT_NEAR(scored.log_probs[next], log_prob[i], 1e-4) << "sequence " << scored.sequence << " token " << i;
        EXPECT_EQ(scored.greedy[next], greedy[i]);
        greedy_ones += greedy[i] ? 1 : 0;
        ++next;
      }
      EXPECT_EQ(next, scored.log_probs.size());
    });
    EXPECT_EQ(seen, std::vector<int>(all.size(), 1));
    EXPECT_EQ(read, total);
    EXPECT_GE(greedy_ones, static_cast<int64_t>(all.size()));
  }
}

TEST_P(PrefixBatches, WhatIsSharedIsReadOnce) {
  Ids context;
  for (int32_t i = 0; i < 30; ++i) context.push_back(i % static_cast<int32_t>(model_.vocab_size()));
  std::vector<ScoreRequest> all;
  for (int32_t i = 0; i < 4; ++i) {
    Ids ids = context;
    for (int32_t k = 0; k < i; ++k) ids.push_back(i);
    Ids targets(ids.size(), -100);
    targets.back() = i;
    all.push_back({ids, targets});
  }
  int64_t read = 0;
  BatchOptions options;
  options.on_read = [&](int64_t count, int64_t) { read += count; };
  model_.score(all, options, [](const Scored&) {});
  EXPECT_EQ(read, 30 + 0 + 1 + 2 + 3);

  // What was done before is left out, and so is what only that needed.
  options.skip = {false, true, true, false};
  read = 0;
  std::set<int64_t> scored;
  model_.score(all, options, [&](const Scored& one) { scored.insert(one.sequence); });
  EXPECT_EQ(scored, (std::set<int64_t>{0, 3}));
  EXPECT_EQ(read, 30 + 3);
}

// ---- generation

TEST_P(PrefixBatches, PromptsSayWhatEachSaysAlone) {
  std::mt19937 random(5);
  const auto prompts = family(random, 20, static_cast<int32_t>(model_.vocab_size()));
  for (const double temperature : {0.0, 1.0}) {
    const GenerateOptions options{.max_tokens = 6,
                                  .sampling = {.temperature = temperature, .repetition_penalty = 1.1, .seed = 11}};
    const auto said_enough = [](const Ids& said) { return said.size() == 4 && said.back() % 2 == 0; };
    std::vector<Ids> expected;
    for (std::size_t n = 0; n < prompts.size(); ++n) {
      GenerateOptions own = options;
      own.sampling.seed += n;
      Ids said;
      Session session = model_.start();
      session.generate({&prompts[n], 1}, own, [&](int64_t, int32_t id) {
        said.push_back(id);
        return !said_enough(said);
      });
      expected.push_back(said);
    }
    for (const auto& [tokens, sequences] : {std::pair<int64_t, int64_t>{4096, 64}, {5, 3}}) {
      std::vector<Ids> said(prompts.size());
      const GenerateStats stats = model_.generate(prompts, options, {.tokens = tokens, .sequences = sequences},
                                                  [&](int64_t prompt, int32_t id) {
                                                    said[prompt].push_back(id);
                                                    return !said_enough(said[prompt]);
                                                  });
      EXPECT_EQ(said, expected) << "passes of " << tokens << " tokens, temperature " << temperature;
      int64_t count = 0;
      for (const Ids& ids : said) count += static_cast<int64_t>(ids.size());
      EXPECT_EQ(stats.tokens, count);
    }
  }
}

TEST_P(PrefixBatches, PromptsThatAreSkippedSayNothing) {
  const std::vector<Ids> prompts = {{1, 2, 3}, {1, 2, 3}, {4, 5}};
  std::multiset<int64_t> spoke;
  BatchOptions batch;
  batch.skip = {true, false, false};
  model_.generate(prompts, {.max_tokens = 1}, batch, [&](int64_t prompt, int32_t) {
    spoke.insert(prompt);
    return true;
  });
  EXPECT_EQ(spoke, (std::multiset<int64_t>{1, 2}));
}

TEST_P(PrefixBatches, WrongInputIsNamed) {
  const auto message_of = [&](const auto& call) {
    try {
      call();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto score = [&](std::vector<ScoreRequest> all, BatchOptions options) {
    return message_of([&] { model_.score(all, options, [](const Scored&) {}); });
  };
  EXPECT_NE(score({{{1}, {1}}, {{1}, {1 << 30}}}, {}).find("of request 1"), std::string::npos);
  EXPECT_NE(score({{{}, {}}}, {}).find("of request 0"), std::string::npos);
  EXPECT_NE(score({{{1}, {1}}}, {.tokens = 0}).find("at least 1"), std::string::npos);
  EXPECT_NE(score({{{1}, {1}}}, {.skip = {true, false}}).find("given 2"), std::string::npos);
  EXPECT_NE(message_of([&] {
              model_.generate(std::vector<Ids>{{1}, {}}, {}, {}, [](int64_t, int32_t) { return true; });
            }).find("prompts[1]"),
            std::string::npos);
}

// ---- memory

int64_t bytes_in_use() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

// The most that scoring these sequences takes from the heap at once, besides the sequences themselves.
int64_t most_bytes_of_scoring(Model& model, const std::vector<Ids>& sequences, BatchOptions options) {
  std::vector<ScoreRequest> requests;
  for (const Ids& ids : sequences) {
    requests.push_back({ids, Ids(ids.size(), -100)});
    requests.back().targets.back() = 1;
  }
  const int64_t before = bytes_in_use();
  int64_t most = 0;
  options.on_read = [&](int64_t, int64_t) { most = std::max(most, bytes_in_use() - before); };
  model.score(requests, options, [](const Scored&) {});
  return most;
}

TEST_P(PrefixBatches, LongSequencesTakeNoMoreMemory) {
  if (test::kSanitized) GTEST_SKIP() << "sanitizers keep memory of their own";
  const auto bytes_of_length = [&](std::size_t tokens) {
    return most_bytes_of_scoring(model_, {Ids(tokens, 1)}, {.tokens = 64});
  };
  bytes_of_length(128);  // buffers of the passes
  constexpr int64_t kShort = 256, kLong = 2048;
  // A token has kilobytes of activations.
  EXPECT_LE(bytes_of_length(kLong) - bytes_of_length(kShort), 16 * (kLong - kShort));
}

TEST_P(PrefixBatches, ManyBranchesOfOneTextTakeNoMoreStates) {
  if (test::kSanitized) GTEST_SKIP() << "sanitizers keep memory of their own";
  Ids text;
  std::mt19937 random(7);
  for (int i = 0; i < 64 * 10; ++i) text.push_back(static_cast<int32_t>(random() % (model_.vocab_size() - 1)));
  // A needle, the token that the text lacks, behind every tenth token: each prefix goes on from the one before.
  const auto bytes_of_branches = [&](int branches) {
    std::vector<Ids> all;
    for (int i = 1; i <= branches; ++i) {
      all.emplace_back(text.begin(), text.begin() + 10 * i);
      all.back().push_back(static_cast<int32_t>(model_.vocab_size() - 1));
    }
    return most_bytes_of_scoring(model_, all, {.tokens = 64, .state_bytes = 1});
  };
  bytes_of_branches(60);
  constexpr int64_t kNode = 1024;  // what the plan keeps of a branch, generously
  EXPECT_LE(bytes_of_branches(60) - bytes_of_branches(20), 40 * kNode + 4 * model_.start().bytes());
}

INSTANTIATE_TEST_SUITE_P(Models, PrefixBatches, testing::ValuesIn(test::model_fixture_paths()),
                         [](const auto& one) { return test::model_fixture_name(one.param); });

}  // namespace
}  // namespace deltanet
