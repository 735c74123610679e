// Files that are wrong are refused with an Error that names the file and the field; and what the golden tokenizers do
// not show: bytes, directories, special names, very long words.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "data/tokenizer/loaders.h"
#include "data/unicode/utf8.h"
#include "deltanet/error.h"
#include "deltanet/tokenizer.h"

namespace deltanet::test {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int32_t>;
using nlohmann::json;

const fs::path kFolder = fs::path(DELTANET_SOURCE_DIR) / "tests/golden/tokenizers";

std::string read(const std::string& name) {
  std::ifstream file(kFolder / name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A small tokenizer that the tests then change.
json small() {
  return json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 6, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                      "normalized": false, "special": true}],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "dropout": null, "unk_token": "?", "continuing_subword_prefix": null,
              "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
              "vocab": {"?": 0, "a": 1, "b": 2, "ab": 3, "c": 4, "abc": 5}, "merges": ["a b", ["ab", "c"]]}})");
}

std::unique_ptr<Tokenizer> tokenizer_of(const json& file) {
  return data::tokenizer_from_json(file.dump(), "test/tokenizer.json");
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(TokenizerFiles, TheSmallOneWorks) {
  const auto tokenizer = tokenizer_of(small());
  EXPECT_EQ(tokenizer->encode("abcabxc<s>a"), (Ids{5, 3, 0, 4, 6, 1}));
  EXPECT_EQ(tokenizer->decode(Ids{5, 6, 1}), "abca");
  EXPECT_EQ(tokenizer->decode(Ids{5, 6, 1}, false), "abc<s>a");
  EXPECT_EQ(tokenizer->vocab_size(), 7);
  EXPECT_EQ(tokenizer->bos(), 6);
  EXPECT_EQ(tokenizer->eos(), std::nullopt);
}

// What stands around a text may be several tokens, in front of it and behind it.
TEST(TokenizerFiles, TemplatesPutAllTheirTokensAround) {
  json file = small();
  file["post_processor"] = json::parse(R"({
      "type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "begin", "type_id": 0}}, {"SpecialToken": {"id": "<s>", "type_id": 0}},
                 {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "end", "type_id": 0}}],
      "pair": [],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [6], "tokens": ["<s>"]},
                         "begin": {"id": "begin", "ids": [4, 1, 2], "tokens": ["c", "a", "b"]},
                         "end": {"id": "end", "ids": [2, 4], "tokens": ["b", "c"]}}})");
  const auto tokenizer = tokenizer_of(file);
  EXPECT_EQ(tokenizer->encode("abc", true), (Ids{4, 1, 2, 6, 5, 2, 4}));
  EXPECT_EQ(tokenizer->encode("", true), (Ids{4, 1, 2, 6, 2, 4}));
  EXPECT_EQ(tokenizer->encode("abc"), Ids{5});
}

// ---- small files whose ids are those of Hugging Face's tokenizers

json added(int id, const char* content, bool lstrip = false, bool rstrip = false, bool single_word = false) {
  return {{"id", id},         {"content", content}, {"single_word", single_word},
          {"lstrip", lstrip}, {"rstrip", rstrip},   {"normalized", false},
          {"special", true}};
}

// All blanks beside a token that takes them, but none that another token has taken; the longest token of those that
// begin at one place.
TEST(TokenizerFiles, AddedTokensTakeTheirBlanks) {
  json file = small();
  file["added_tokens"] = {
      added(6, "<s>"),   added(7, "<l>", true),       added(8, "<r>", false, true), added(9, "<w>", false, false, true),
      added(10, "<s>>"), added(11, "<b>", true, true)};
  const auto tokenizer = tokenizer_of(file);
  const std::pair<const char*, Ids> cases[] = {{"a   <l>b", {1, 7, 2}},
                                               {"a <s>  <l>  b", {1, 0, 6, 7, 0, 0, 2}},
                                               {"a<r>   b", {1, 8, 2}},
                                               {"a<r> \t\n b", {1, 8, 2}},
                                               {"<s>>a", {10, 1}},
                                               {"<s>> <s>", {10, 0, 6}},
                                               {"a<w>b", {1, 0, 0, 0, 2}},
                                               {" <w> ", {0, 9, 0}},
                                               {"a <w> b", {1, 0, 9, 0, 2}},
                                               {"c<w>", {4, 0, 0, 0}},
                                               {"a  <b>  <b>  b", {1, 11, 11, 2}},
                                               {"  <l>", {7}},
                                               {" <r> <l> ", {0, 8, 7, 0}},
                                               {"a<r>  <l>b", {1, 8, 7, 2}}};
  for (const auto& [text, ids] : cases) EXPECT_EQ(tokenizer->encode(text), ids) << "\"" << text << "\"";
}

TEST(TokenizerFiles, ByteLevelPutsABlankWhereThereIsNone) {
  json file = small();
  file["added_tokens"] = json::array();
  file["pre_tokenizer"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", false}};
  file["model"]["vocab"] = {{"?", 0}, {"a", 1}, {"Ġ", 2}, {"Ġa", 3}, {"ĠĠ", 4}};
  file["model"]["merges"] = {"Ġ Ġ", "Ġ a"};
  const auto tokenizer = tokenizer_of(file);
  const std::pair<const char*, Ids> cases[] = {{"a", {3}}, {" a", {3}}, {"  a", {4, 1}}, {"a a", {3, 3}}, {"", {}}};
  for (const auto& [text, ids] : cases) EXPECT_EQ(tokenizer->encode(text), ids) << "\"" << text << "\"";
}

TEST(TokenizerFiles, StripTakesFromTheEndsOfEveryToken) {
  json file = small();
  file["added_tokens"] = json::array();
  file["model"]["vocab"] = {{"?", 0}, {"a", 1}, {"b", 2}, {"aa", 3}, {"aaba", 4}, {"baaa", 5}};
  file["model"]["merges"] = json::array({"a a"});
  const auto decoded = [&](int start, int stop) {
    json strip = {{"type", "Strip"}, {"content", "a"}, {"start", start}, {"stop", stop}};
    file["decoder"] = {{"type", "Sequence"}, {"decoders", {strip, {{"type", "Fuse"}}}}};
    const auto tokenizer = tokenizer_of(file);
    std::vector<std::string> texts;
    for (int32_t id = 1; id <= 5; ++id) texts.push_back(tokenizer->decode(Ids{id}));
    texts.push_back(tokenizer->decode(Ids{4, 5, 3}));
    return texts;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(decoded(1, 0), (Texts{"", "b", "a", "aba", "baaa", "ababaaaa"}));
  EXPECT_EQ(decoded(0, 1), (Texts{"", "b", "a", "aab", "baa", "aabbaaa"}));
}

// ---- SentencePiece models that are written here: the fields of its format that matter

std::string field(int number, const std::string& bytes) {
  std::string text(1, static_cast<char>(number << 3 | 2));
  for (std::size_t size = bytes.size();; size >>= 7) {
    text += static_cast<char>((size & 0x7F) | (size > 0x7F ? 0x80 : 0));
    if (size <= 0x7F) break;
  }
  return text + bytes;
}
std::string field(int number, char value) { return {static_cast<char>(number << 3), value}; }

std::string piece(const std::string& text, float score, char type) {
  std::string bits(reinterpret_cast<const char*>(&score), sizeof score);
  return field(1, field(1, text) + static_cast<char>(2 << 3 | 5) + bits + field(3, type));
}

// A BPE model with the letters of "at", a blank, and what merges make of them, the best first.
std::string bpe_model(const std::vector<std::string>& merged) {
  constexpr char kNormal = 1, kUnknown = 2, kControl = 3, kBpe = 2;
  std::string model = piece("<unk>", 0, kUnknown) + piece("<s>", 0, kControl) + piece("</s>", 0, kControl);
  float score = 0;
  for (const std::string& text : merged) model += piece(text, score--, kNormal);
  for (const char* text : {"▁", "a", "t"}) model += piece(text, score--, kNormal);
  // Of the trainer: the kind of model. Of the normalizer: its name, a blank in front, blanks as they are, the symbol.
  return model + field(2, field(3, kBpe)) + field(3, field(1, "identity") + field(3, 1) + field(4, 0) + field(5, 1));
}

// Words are looked up one by one only where no piece reaches over a blank.
TEST(TokenizerFiles, PiecesMayReachOverBlanks) {
  const std::string text = "at at at a at";
  const auto pieces_of = [&](const std::vector<std::string>& merged) {
    const auto tokenizer = data::tokenizer_from_sentencepiece(bpe_model(merged), "test/tokenizer.model");
    std::vector<std::string> pieces;
    for (const int32_t id : tokenizer->encode(text)) pieces.push_back(tokenizer->piece(id));
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
    return pieces;
  };
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(pieces_of({"at", "▁at"}), (Pieces{"▁at", "▁at", "▁at", "▁", "a", "▁at"}));
  EXPECT_EQ(pieces_of({"at", "▁at", "▁at▁at"}), (Pieces{"▁at▁at", "▁at", "▁", "a", "▁at"}));
  EXPECT_EQ(pieces_of({"at", "at▁"}), (Pieces{"▁", "at▁", "at▁", "at▁", "a", "▁", "at"}));
}

struct Mistake {
  const char* where;  // JSON pointer of what is changed
  json value;
  const char* named;  // field that the error must name
};

TEST(TokenizerFiles, MistakesNameTheFileAndTheField) {
  const std::vector<Mistake> mistakes = {
      {"/model/type", "Unigram", "model.type: given \"Unigram\""},
      {"/model/dropout", 0.1, "model.dropout"},
      {"/model/unk_token", "none", "model.unk_token"},
      {"/model/continuing_subword_prefix", "##", "model.continuing_subword_prefix"},
      {"/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix"},
      {"/model/byte_fallback", "yes", "model.byte_fallback"},
      {"/model/vocab", json::array(), "model.vocab"},
      {"/model/vocab/a", -1, "model.vocab.a"},
      {"/model/vocab/a", 1.5, "model.vocab.a"},
      {"/model/vocab/a", 1ull << 40, "model.vocab.a"},
      {"/model/vocab/a", ~0ull, "model.vocab.a"},
      {"/model/vocab/a", 2, "an id of its own"},
      {"/model/merges/0", "ab", "model.merges[0]"},
      {"/model/merges/0", "a b c", "model.merges[0]"},
      {"/model/merges/0", "a z", "model.merges[0]: given \"z\""},
      {"/model/merges/1", json::array({"b", "c"}), "model.merges[1]: given \"bc\""},
      {"/model/merges/1", json::array({"b"}), "model.merges[1]"},
      {"/model/merges/1", 7, "model.merges[1]"},
      {"/model/something", 1, "something"},
      {"/something", 1, "something"},
      {"/added_tokens/0/id", 1, "added_tokens[0].id"},
      {"/added_tokens/0/id", -3, "added_tokens[0].id"},
      {"/added_tokens/0/content", "", "added_tokens[0].content"},
      {"/added_tokens/0/content", "a", "added_tokens[0].id"},
      {"/normalizer", {{"type", "BertNormalizer"}}, "normalizer.type: given \"BertNormalizer\""},
      {"/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Nmt"}}}}}, "normalizer.normalizers[0].type"},
      {"/normalizer", {{"type", "NFC"}, {"form", 1}}, "form"},
      {"/normalizer",
       {{"type", "Replace"}, {"pattern", {{"Regex", "(a"}}}, {"content", ""}},
       "normalizer.pattern.Regex"},
      {"/pre_tokenizer", {{"type", "UnicodeScripts"}}, "pre_tokenizer.type: given \"UnicodeScripts\""},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "[a&&b]"}}}, {"behavior", "Isolated"}},
       "intersection"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Torn"}},
       "pre_tokenizer.behavior"},
      {"/pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "ab"}}, "pre_tokenizer.replacement"},
      {"/post_processor", {{"type", "BertProcessing"}}, "post_processor.type: given \"BertProcessing\""},
      {"/post_processor",
       {{"type", "TemplateProcessing"}, {"single", {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}}}},
       "post_processor.single[0].SpecialToken.id"},
      {"/decoder", {{"type", "WordPiece"}}, "decoder.type: given \"WordPiece\""},
      {"/decoder", {{"type", "Strip"}, {"content", " "}, {"start", -1}, {"stop", 0}}, "decoder.start"},
      {"/decoder", {{"kind", "Fuse"}}, "no \"type\""},
      {"/decoder", 5, "decoder"},
  };
  for (const Mistake& mistake : mistakes) {
    json file = small();
    file[json::json_pointer(mistake.where)] = mistake.value;
    const std::string error = error_of([&] { tokenizer_of(file); });
    EXPECT_NE(error.find(mistake.named), std::string::npos) << mistake.where << " " << mistake.value << ": " << error;
    EXPECT_NE(error.find("test/tokenizer.json"), std::string::npos) << error;
  }
  for (const char* field :
       {"/model", "/model/vocab", "/model/merges", "/added_tokens/0/id", "/added_tokens/0/content"}) {
    json file = small();
    const json::json_pointer pointer(field);
    file[pointer.parent_pointer()].erase(pointer.back());
    EXPECT_NE(error_of([&] { tokenizer_of(file); }), "") << field;
  }
  json nested = {{"type", "NFC"}};
  for (int i = 0; i < 20; ++i) nested = {{"type", "Sequence"}, {"normalizers", json::array({nested})}};
  json file = small();
  file["normalizer"] = nested;
  EXPECT_NE(error_of([&] { tokenizer_of(file); }).find("sequences within sequences"), std::string::npos);
}

// Cut off anywhere or with a byte changed, a file is refused or it works; nothing else happens.
TEST(TokenizerFiles, DamagedFilesNeverCrash) {
  std::mt19937 random(1);
  for (const std::string name :
       {"llama3.json", "llama2.json", "sentencepiece_bpe.model", "sentencepiece_unigram.model"}) {
    const std::string whole = read(name);
    const bool is_json = name.ends_with(".json");
    int refused = 0;
    for (int i = 0; i < 60; ++i) {
      std::string damaged = whole;
      if (i % 2 == 0) {
        damaged.resize(random() % whole.size());
      } else {
        for (int k = 0; k < 3; ++k) damaged[random() % whole.size()] = static_cast<char>(random());
      }
      try {
        const auto tokenizer =
            is_json ? data::tokenizer_from_json(damaged, name) : data::tokenizer_from_sentencepiece(damaged, name);
        tokenizer->decode(tokenizer->encode("Hello, wörld! 天地 123", true));
      } catch (const Error& error) {
        ++refused;
      }
    }
    EXPECT_GT(refused, 10) << name;
  }
}

TEST(TokenizerFiles, PathsThatAreNoTokenizers) {
  const fs::path folder = fs::path(testing::TempDir()) / "no_tokenizer";
  fs::create_directories(folder);
  std::ofstream(folder / "empty.model");
  std::ofstream(folder / "empty.json");
  for (const std::string& path : {folder.string(), (folder / "missing.json").string(),
                                  (folder / "empty.model").string(), (folder / "empty.json").string()}) {
    EXPECT_NE(error_of([&] { load_tokenizer(path); }).find(path), std::string::npos) << path;
  }
}

TEST(TokenizerFiles, DirectoriesPreferJsonAndReadSpecialNames) {
  const fs::path folder = fs::path(testing::TempDir()) / "tokenizer";
  fs::remove_all(folder);
  fs::create_directories(folder);
  fs::copy_file(kFolder / "sentencepiece_bpe.model", folder / "tokenizer.model");
  const auto model = load_tokenizer(folder.string());
  EXPECT_EQ(model->bos(), 1);
  EXPECT_EQ(model->eos(), 2);
  std::ofstream(folder / "tokenizer.json") << small();
  EXPECT_EQ(load_tokenizer(folder.string())->vocab_size(), 7);
  std::ofstream(folder / "tokenizer_config.json") << R"({"bos_token": "abc", "eos_token": {"content": "<s>"}})";
  const auto named = load_tokenizer(folder.string());
  EXPECT_EQ(named->bos(), 5);
  EXPECT_EQ(named->eos(), 6);
}

TEST(TokenizerFiles, LongWordsTakeLinearTime) {
  // One word of 1 MB. Quadratic time would be hours; with a heap it is below a second.
  const auto tokenizer = load_tokenizer((kFolder / "gpt2.json").string());
  std::mt19937 random(2);
  std::string word;
  for (int i = 0; i < 1'000'000; ++i) word += static_cast<char>('a' + random() % 26);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(word)), word);
  const std::string same(1'000'000, 'a');
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(same)), same);
}

// The definition: join the leftmost pair of the lowest rank until there is none.
Ids slow_bpe(const json& model, const std::vector<std::string>& characters) {
  std::map<std::pair<std::string, std::string>, std::size_t> ranks;
  for (const json& merge : model["merges"]) ranks.emplace(std::pair(merge[0], merge[1]), ranks.size());
  std::vector<std::string> tokens;
  for (const std::string& character : characters) {
    if (model["vocab"].contains(character)) {
      tokens.push_back(character);
      continue;
    }
    for (const char byte : character) tokens.push_back(fmt::format("<0x{:02X}>", static_cast<unsigned char>(byte)));
  }
  while (true) {
    std::size_t best = ranks.size(), at = 0;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto found = ranks.find({tokens[i], tokens[i + 1]});
      if (found == ranks.end() || found->second >= best) continue;
      best = found->second;
      at = i;
    }
    if (best == ranks.size()) break;
    tokens[at] += tokens[at + 1];
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  Ids ids;
  for (const std::string& token : tokens) ids.push_back(model["vocab"][token]);
  return ids;
}

// The heap, the cache of words and the cuts in long words change nothing.
TEST(TokenizerFiles, EncodesAsTheDefinitionSays) {
  const auto tokenizer = load_tokenizer((kFolder / "llama2.json").string());
  const json model = json::parse(read("llama2.json"))["model"];
  const std::vector<std::string> alphabet = {"a", "e",  "t", "h",  "r", "i", "n", "▁",
                                             "é", "天", "X", "\n", "😀", "<", "0"};
  std::mt19937 random(3);
  for (int i = 0; i < 150; ++i) {
    std::vector<std::string> characters = {"▁"};  // the normalizer puts it in front
    std::string text;
    for (int k = 0; k < 1 + i; ++k) {
      characters.push_back(alphabet[random() % alphabet.size()]);
      text += characters.back();
    }
    EXPECT_EQ(tokenizer->encode(text), slow_bpe(model, characters)) << text;
  }
}

TEST(ByteTokenizer, GivesBackAnyBytes) {
  const auto tokenizer = byte_tokenizer();
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  all += "caf\xC3\xA9 \xE5\xA4\xA9 \xF0\x9F\x98";
  const Ids ids = tokenizer->encode(all);
  ASSERT_EQ(ids.size(), all.size());
  EXPECT_EQ(ids[200], 200);
  EXPECT_EQ(tokenizer->decode(ids), all);
  EXPECT_EQ(tokenizer->vocab_size(), 256);
  EXPECT_EQ(tokenizer->id_of("a"), 'a');
  EXPECT_THROW(tokenizer->decode(Ids{256}), Error);

  StreamDecoder decoder(*tokenizer);
  std::vector<std::string> parts;
  for (const int32_t id : tokenizer->encode("a\xC3\xA9\xE5\xA4")) parts.push_back(decoder.push(id));
  EXPECT_EQ(parts, (std::vector<std::string>{"a", "", "\xC3\xA9", "", ""}));
  EXPECT_EQ(decoder.finish(), "\xE5\xA4");
  EXPECT_EQ(decoder.push('b'), "b");
}

}  // namespace
}  // namespace deltanet::test
