// train_bpe: the merges of a text by hand and against the definition, and a file that the tokenizer reads.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "data/tokenizer/bpe_train.h"
#include "deltanet/error.h"
#include "deltanet/tokenizer.h"

namespace deltanet::data {
namespace {

using Merges = std::vector<std::pair<std::string, std::string>>;

Merges merges_of(const std::string& tokenizer_json) {
  Merges merges;
  const nlohmann::json json = nlohmann::json::parse(tokenizer_json);
  for (const auto& merge : json["model"]["merges"]) {
    merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
  }
  return merges;
}

// What the merges make of a word of letters.
std::vector<std::string> encoded(const std::string& word, const Merges& merges) {
  std::vector<std::string> parts;
  for (const char c : word) parts.emplace_back(1, c);
  for (const auto& [left, right] : merges) {
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      if (parts[i] != left || parts[i + 1] != right) continue;
      parts[i] += right;
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
  }
  return parts;
}

TEST(BpeTrain, JoinsTheMostFrequentPairFirst) {
  // The words abab, " abab", " ab": a-b stands five times, then Ġ-ab and ab-ab two times each: "ab" has the id 256 and
  // Ġ (the blank) 32, so the latter comes first, which leaves ab-ab standing once.
  EXPECT_EQ(merges_of(train_bpe("abab abab ab", 1000)), (Merges{{"a", "b"}, {"Ġ", "ab"}}));
}

TEST(BpeTrain, EveryMergeIsOfAPairThatNoOtherOutnumbers) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Rng rng(seed, 0);
    std::string text;
    std::map<std::string, int64_t> words;
    for (int word = 0; word < 40; ++word) {
      std::string letters;
      const int length = 1 + static_cast<int>(rng.uniform() * 6);
      for (int i = 0; i < length; ++i) {
        letters += static_cast<char>('a' + static_cast<int>(rng.uniform() * 3));
      }
      ++words[letters];
      text += letters + "\n";  // a line break is a word of its own
    }
    const Merges merges = merges_of(train_bpe(text, 1000));
    EXPECT_GT(merges.size(), 5u);  // some of letters, some of what was joined before
    for (std::size_t i = 0; i <= merges.size(); ++i) {
      std::map<std::pair<std::string, std::string>, int64_t> pairs;
      const Merges before(merges.begin(), merges.begin() + static_cast<std::ptrdiff_t>(i));
      for (const auto& [word, count] : words) {
        const std::vector<std::string> parts = encoded(word, before);
        for (std::size_t k = 1; k < parts.size(); ++k) pairs[{parts[k - 1], parts[k]}] += count;
      }
      int64_t most = 0;
      for (const auto& [pair, count] : pairs) most = std::max(most, count);
      if (i < merges.size()) {
        EXPECT_EQ(pairs[merges[i]], most) << "seed " << seed << ", merge " << i;
      } else {
        EXPECT_LT(most, 2) << "seed " << seed;
      }
    }
  }
}

TEST(BpeTrain, TheFileIsATokenizerThatGivesEveryTextBack) {
  const std::string text = "Größe, naïve — \xF0\x9F\x8C\xBF and 42\n\tpairs of pairs of pairs\n";
  const std::string json = train_bpe(text, 260);
  EXPECT_EQ(json, train_bpe(text, 260));
  const auto path = std::filesystem::path(testing::TempDir()) / "bpe_train" / "tokenizer.json";
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << json;
  const auto tokenizer = load_tokenizer(path.string());
  EXPECT_EQ(tokenizer->vocab_size(), 260);
  for (const std::string& any : {text, std::string("other words: Zürich, \xE2\x82\xAC 7")}) {
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(any)), any);
  }
  EXPECT_LT(tokenizer->encode(text).size(), text.size());
}

TEST(BpeTrain, AVocabularyHasRoomForAllBytes) { EXPECT_THROW(train_bpe("text", 255), Error); }

}  // namespace
}  // namespace deltanet::data
