// Tokenizers give the ids and texts that Python's tokenizers and sentencepiece give, on the corpus and with the
// tokenizers of tests/golden/tokenizers (made by tests/python/make_tokenizers.py).

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "data/unicode/utf8.h"
#include "deltanet/error.h"
#include "deltanet/tokenizer.h"

namespace deltanet::test {
namespace {

using Ids = std::vector<int32_t>;

const std::filesystem::path kFolder = std::filesystem::path(DELTANET_SOURCE_DIR) / "tests/golden/tokenizers";

nlohmann::json read_json(const std::string& name) { return nlohmann::json::parse(std::ifstream(kFolder / name)); }

std::vector<std::string> corpus() {
  std::vector<std::string> texts;
  for (const std::string hex : read_json("corpus.json")) {
    std::string& text = texts.emplace_back();
    for (std::size_t i = 0; i < hex.size(); i += 2) text += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return texts;
}

std::string stream(const Tokenizer& tokenizer, const Ids& ids, bool skip_special) {
  StreamDecoder decoder(tokenizer, skip_special);
  std::string text;
  for (const int32_t id : ids) {
    const std::string part = decoder.push(id);
    EXPECT_TRUE(data::is_valid_utf8(part)) << "a part of a character was handed out";
    text += part;
  }
  return text + decoder.finish();
}

class GoldenTokenizers : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    tokenizer = load_tokenizer((kFolder / GetParam()).string());
    expected = read_json(std::filesystem::path(GetParam()).stem().string() + ".expected.json");
    texts = corpus();
    ASSERT_GT(expected.size(), texts.size());
  }

  std::unique_ptr<Tokenizer> tokenizer;
  nlohmann::json expected;  // see make_tokenizers.py
  std::vector<std::string> texts;
};

TEST_P(GoldenTokenizers, EncodeAndDecodeAsPython) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto& [ids, special, text, text_all] = expected[i].get<std::array<nlohmann::json, 4>>();
    SCOPED_TRACE("case " + std::to_string(i));
    if (i < texts.size()) {
      EXPECT_EQ(tokenizer->encode(texts[i]), ids.get<Ids>());
      EXPECT_EQ(tokenizer->encode(texts[i], true), (special.is_null() ? ids : special).get<Ids>());
    }
    const Ids all = (special.is_null() ? ids : special).get<Ids>();
    const std::string decoded = text.is_null() ? texts.at(i) : text.get<std::string>();
    const std::string decoded_all = text_all.is_null() ? decoded : text_all.get<std::string>();
    EXPECT_EQ(tokenizer->decode(all), decoded);
    EXPECT_EQ(tokenizer->decode(all, false), decoded_all);
    EXPECT_EQ(stream(*tokenizer, all, true), decoded);
    EXPECT_EQ(stream(*tokenizer, all, false), decoded_all);
  }
}

TEST_P(GoldenTokenizers, PiecesAndIdsAreInverse) {
  int64_t found = 0;
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
    const std::string piece = tokenizer->piece(id);
    if (piece.empty()) continue;
    EXPECT_EQ(tokenizer->id_of(piece), id) << piece;
    ++found;
  }
  EXPECT_GT(found, 300);
  EXPECT_EQ(tokenizer->id_of("no such token"), std::nullopt);
}

TEST_P(GoldenTokenizers, ManyThreadsGetTheSame) {
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < texts.size(); ++i) {
        const Ids ids = tokenizer->encode(texts[i]);
        if (ids != expected[i][0].get<Ids>()) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

TEST_P(GoldenTokenizers, IdsOutsideTheVocabularyAreErrors) {
  for (const int32_t id : {-1, static_cast<int32_t>(tokenizer->vocab_size()), INT32_MAX, INT32_MIN}) {
    EXPECT_THROW(tokenizer->decode(Ids{id}), Error);
    EXPECT_THROW(tokenizer->piece(id), Error);
    EXPECT_THROW(StreamDecoder(*tokenizer).push(id), Error);
  }
}

std::string test_name(const testing::TestParamInfo<std::string>& test) {
  return std::filesystem::path(test.param).stem().string();
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, GoldenTokenizers,
                         testing::Values("gpt2.json", "llama3.json", "llama2.json", "metaspace.json", "words.json",
                                         "sentencepiece_bpe.model", "sentencepiece_unigram.model"),
                         test_name);

}  // namespace
}  // namespace deltanet::test
