// Shards of tokens: what was written is read, however it is cut into files; nothing unfinished or damaged is taken for
// a corpus; tokenizing gives the same bytes for any number of threads.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <set>
#include <thread>
#include <tuple>

#include "data/corpus/shards.h"
#include "data/corpus/tokenize.h"
#include "file_calls.h"
#include "file_size_limit.h"
#include "random_tests.h"
#include "temporary_directory.h"

namespace deltanet::test {
namespace {

using data::ShardMeta;
using data::ShardOptions;
using data::ShardStore;
using data::ShardWriter;
using data::TextSource;
using data::TokenStore;
using Ids = std::vector<int32_t>;
using Starts = std::vector<int64_t>;

#define EXPECT_ERROR_HAS(call, part)                                             \
  do {                                                                           \
    const std::string error = error_of([&] { call; });                           \
    EXPECT_NE(error.find(part), std::string::npos) << "the error is: " << error; \
  } while (false)

void write(const std::filesystem::path& directory, const std::vector<Ids>& documents, const ShardOptions& options) {
  ShardWriter writer(directory, options);
  for (const Ids& document : documents) {
    writer.append(document);
    writer.end_document();
  }
  writer.finish();
}

Ids all_ids(const TokenStore& store) {
  Ids ids(static_cast<std::size_t>(store.size()));
  store.read(0, store.size(), ids.data());
  return ids;
}

const std::vector<Ids> kDocuments = {{1, 2, 3}, {4}, {}, {5, 6, 7, 8, 9, 10, 11}};
const Ids kWithEos = {1, 2, 3, 0, 4, 0, 5, 6, 7, 8, 9, 10, 11, 0};
const Starts kStarts = {0, 4, 6};

TEST(Shards, GiveBackWhatWasWritten) {
  for (const int64_t vocab_size : {12, 1 << 16, (1 << 16) + 1}) {
    for (const int64_t shard_tokens : {1, 2, 3, 4, 6, 13, 14, 15}) {
      const TemporaryDirectory directory;
      write(directory / "corpus", kDocuments,
            {.vocab_size = vocab_size, .eos = 0, .tokenizer = "none", .shard_tokens = shard_tokens});
      const ShardStore store(directory / "corpus");
      EXPECT_EQ(all_ids(store), kWithEos);
      EXPECT_EQ(store.document_starts(0, store.size()), kStarts);
      EXPECT_EQ(store.largest_id(), 11);
      EXPECT_EQ(store.meta().vocab_size, vocab_size);
      EXPECT_EQ(store.meta().tokens(), 14);
      EXPECT_EQ(store.meta().documents(), 3);
      EXPECT_EQ(store.meta().eos, 0);
      EXPECT_EQ(store.meta().tokenizer, "none");
      EXPECT_EQ(store.meta().shards.size(), static_cast<std::size_t>((14 + shard_tokens - 1) / shard_tokens));
    }
  }
}

TEST(Shards, AnyRangeCanBeRead) {
  const TemporaryDirectory directory;
  write(directory.path(), kDocuments, {.vocab_size = 12, .eos = 0, .shard_tokens = 4});
  const ShardStore store(directory.path());
  for (int64_t begin = 0; begin <= 14; ++begin) {
    for (int64_t end = begin; end <= 14; ++end) {
      Ids ids(static_cast<std::size_t>(end - begin));
      store.read(begin, end, ids.data());
      EXPECT_EQ(ids, Ids(kWithEos.begin() + begin, kWithEos.begin() + end));
      Starts starts;
      for (const int64_t start : kStarts) {
        if (start >= begin && start < end) starts.push_back(start);
      }
      EXPECT_EQ(store.document_starts(begin, end), starts);
    }
  }
  int32_t id = 0;
  EXPECT_ERROR_HAS(store.read(13, 15, &id), "given tokens 13 to 15; expected a part of 0 to 14");
  EXPECT_ERROR_HAS(store.document_starts(-1, 2), "given tokens -1 to 2");
}

TEST(Shards, FilesThatBecomeShorterAreErrors) {
  const TemporaryDirectory directory;
  write(directory.path(), std::vector<Ids>(20'000, Ids{1, 2, 3}), {.vocab_size = 12});
  const ShardStore store(directory.path());
  Ids ids(3);
  for (const auto& [name, bytes] : {std::pair{"shard-00000.bin", 50'001}, {"shard-00000.idx", 70'001}}) {
    std::filesystem::resize_file(directory / name, static_cast<std::uintmax_t>(bytes));
  }
  store.read(0, 3, ids.data());
  EXPECT_EQ(ids, (Ids{1, 2, 3}));
  EXPECT_EQ(store.document_starts(0, 10), (Starts{0, 3, 6, 9}));
  EXPECT_ERROR_HAS(store.read(25'000, 25'003, ids.data()), "shard-00000.bin: ends at byte 50001; expected 120000");
  EXPECT_ERROR_HAS(store.read(59'997, 60'000, ids.data()), "shard-00000.bin: ends at byte");
  EXPECT_ERROR_HAS(store.document_starts(59'990, 60'000), "shard-00000.idx: ends at byte");
}

// More documents than are read at once; those that are asked for lie across blocks and shards.
TEST(Shards, FindTheStartsOfManyDocuments) {
  const TemporaryDirectory directory;
  std::vector<Ids> documents;
  Starts starts;
  int64_t tokens = 0;
  for (int i = 0; i < 3000; ++i) {
    starts.push_back(tokens);
    documents.emplace_back(static_cast<std::size_t>(i % 4 + 1), 7);
    tokens += i % 4 + 1;
  }
  for (const int64_t shard_tokens : {int64_t{1} << 20, int64_t{3001}, int64_t{1280}}) {
    write(directory.path(), documents, {.vocab_size = 12, .shard_tokens = shard_tokens, .replace = true});
    const ShardStore store(directory.path());
    const auto expect = [&](int64_t begin, int64_t end) {
      const auto first = std::lower_bound(starts.begin(), starts.end(), begin);
      ASSERT_EQ(store.document_starts(begin, end), Starts(first, std::lower_bound(first, starts.end(), end)))
          << begin << " to " << end;
    };
    expect(0, tokens);
    for (int64_t begin = 0; begin < tokens; begin += 7) expect(begin, std::min(tokens, begin + begin % 13));
    for (int64_t begin = 1270; begin < 1290; ++begin) expect(begin, begin + 1);  // the end of a block and of a shard
  }
}

TEST(Shards, FilesAreAsDocumented) {
  const TemporaryDirectory directory;
  write(directory.path(), {{1, 258}, {3}}, {.vocab_size = 300, .shard_tokens = 2});
  EXPECT_EQ(directory.names(), (std::vector<std::string>{"meta.json", "shard-00000.bin", "shard-00000.idx",
                                                         "shard-00001.bin", "shard-00001.idx"}));
  EXPECT_EQ(contents(directory / "shard-00000.bin"), std::string("\1\0\2\1", 4));
  EXPECT_EQ(contents(directory / "shard-00001.bin"), std::string("\3\0", 2));
  EXPECT_EQ(contents(directory / "shard-00001.idx"), std::string(8, '\0'));
  const ShardMeta meta = data::meta_from_json(contents(directory / "meta.json"), "meta.json");
  EXPECT_EQ(meta.eos, std::nullopt);
  EXPECT_EQ(meta.largest_id, 258);
}

// The largest vocabulary for two bytes, and the smallest for four.
TEST(Shards, TokensAreAsWideAsTheVocabularyNeeds) {
  for (const auto& [vocab_size, bytes, dtype] : {std::tuple{1 << 16, 2, "u16"}, {(1 << 16) + 1, 4, "u32"}}) {
    const TemporaryDirectory directory;
    const Ids ids = {vocab_size - 1, 0, 65535, 1, vocab_size - 1};
    write(directory.path(), {ids}, {.vocab_size = vocab_size});
    EXPECT_EQ(contents(directory / "shard-00000.bin").size(), 5u * static_cast<unsigned>(bytes)) << vocab_size;
    EXPECT_NE(contents(directory / "meta.json").find(dtype), std::string::npos) << vocab_size;
    EXPECT_EQ(all_ids(ShardStore(directory.path())), ids);
    EXPECT_EQ(ShardStore(directory.path()).largest_id(), vocab_size - 1);
  }
}

TEST(Shards, UnfinishedDirectoriesAreNoCorpus) {
  const TemporaryDirectory directory;
  {
    ShardWriter writer(directory.path(), {.vocab_size = 12, .shard_tokens = 2});
    writer.append(Ids{1, 2, 3, 4, 5});
    EXPECT_FALSE(data::is_token_directory(directory.path()));
    EXPECT_ERROR_HAS(ShardStore(directory.path()), "given no meta.json in it");
  }
  EXPECT_EQ(directory.names(), std::vector<std::string>{});
  // Killed while it wrote, and killed while it moved its files.
  std::filesystem::create_directory(directory / ".unfinished");
  put(directory / ".unfinished/shard-00007.bin", "left");
  put(directory / "shard-00008.bin", "left");
  write(directory.path(), {{7}}, {.vocab_size = 12, .shard_tokens = 2});
  EXPECT_EQ(directory.names(), (std::vector<std::string>{"meta.json", "shard-00000.bin", "shard-00000.idx"}));
  EXPECT_EQ(all_ids(ShardStore(directory.path())), Ids{7});
}

TEST(Shards, ACorpusIsReplacedOnlyIfAsked) {
  const TemporaryDirectory directory;
  put(directory / "shard-notes.bin", "not ours");
  write(directory.path(), {{1, 2, 3}}, {.vocab_size = 12, .shard_tokens = 1});
  EXPECT_ERROR_HAS(write(directory.path(), {{7}}, {.vocab_size = 12}), "holds a corpus of tokens already");
  EXPECT_EQ(all_ids(ShardStore(directory.path())), (Ids{1, 2, 3}));
  write(directory.path(), {{7}}, {.vocab_size = 12, .replace = true});
  EXPECT_EQ(all_ids(ShardStore(directory.path())), Ids{7});
  EXPECT_EQ(directory.names(),
            (std::vector<std::string>{"meta.json", "shard-00000.1.bin", "shard-00000.1.idx", "shard-notes.bin"}));
  EXPECT_EQ(data::read_meta(directory.path()).generation, 1);
  write(directory.path(), {{8, 9}}, {.vocab_size = 12, .replace = true});  // and back
  EXPECT_EQ(all_ids(ShardStore(directory.path())), (Ids{8, 9}));
  EXPECT_EQ(directory.names(),
            (std::vector<std::string>{"meta.json", "shard-00000.bin", "shard-00000.idx", "shard-notes.bin"}));
}

TEST(Shards, ACorpusStaysUntilTheOneInItsPlaceIsComplete) {
  const TemporaryDirectory directory;
  write(directory.path(), {{1, 2, 3}}, {.vocab_size = 12, .shard_tokens = 1});
  const std::vector<std::string> names = directory.names();
  {
    ShardWriter writer(directory.path(), {.vocab_size = 12, .shard_tokens = 2, .replace = true});
    writer.append(Ids{7, 8, 9, 10, 11});  // a kill here leaves what is there now
    EXPECT_EQ(all_ids(ShardStore(directory.path())), (Ids{1, 2, 3}));
    EXPECT_ERROR_HAS(writer.append(Ids{12}), "given the id 12");
  }
  EXPECT_EQ(directory.names(), names);
  EXPECT_EQ(all_ids(ShardStore(directory.path())), (Ids{1, 2, 3}));
  {
    const FileSizeLimit limit(100);  // less than meta.json
    EXPECT_ERROR_HAS(write(directory.path(), {{7}}, {.vocab_size = 12, .replace = true}), "File too large");
  }
  EXPECT_EQ(directory.names(), names);
  EXPECT_EQ(all_ids(ShardStore(directory.path())), (Ids{1, 2, 3}));
}

// The ids of a corpus; nothing if there is none.
std::optional<Ids> ids_in(const std::filesystem::path& directory) {
  std::optional<Ids> ids;
  if (!data::is_token_directory(directory)) return ids;
  EXPECT_EQ(error_of([&] { ids = all_ids(ShardStore(directory)); }), "");
  return ids;
}

std::string tokenizer_in(const std::filesystem::path& directory) {
  return contents(data::tokenizer_folder(directory, data::read_meta(directory).generation) / "tokenizer.json");
}

// A corpus of as many tokens in as many shards takes the place of another, so that a mixture of both could be read.
TEST(Shards, AProcessThatDiesLeavesTheOldCorpusOrTheNew) {
  const std::vector<Ids> old_documents = {{1, 2, 3}, {4, 5}}, new_documents = {{6, 7, 8}, {9, 10}};
  const auto options = [](bool replace, const char* tokenizer) {
    ShardOptions made{.vocab_size = 12, .shard_tokens = 2, .replace = replace};
    made.tokenizer_files = {{"tokenizer.json", tokenizer}};
    return made;
  };
  std::set<std::optional<Ids>> outcomes;
  Ended ended = Ended::kCrashed;
  int crash = 0;
  for (; ended == Ended::kCrashed && crash < 200; ++crash) {
    const TemporaryDirectory directory;
    write(directory.path(), old_documents, options(false, "old"));
    ended = outcome_of_crash(crash, [&] { write(directory.path(), new_documents, options(true, "new")); });
    ASSERT_NE(ended, Ended::kFailed);
    const std::optional<Ids> found = ids_in(directory.path());
    outcomes.insert(found);
    ASSERT_TRUE(found) << "no complete corpus, at call " << crash;
    const bool is_new = *found == Ids{6, 7, 8, 9, 10};
    EXPECT_TRUE(is_new || *found == (Ids{1, 2, 3, 4, 5})) << "a mixture, at call " << crash;
    EXPECT_EQ(tokenizer_in(directory.path()), is_new ? "new" : "old") << "at call " << crash;
    write(directory.path(), {{11}}, options(true, "next"));  // whatever was left behind
    EXPECT_EQ(ids_in(directory.path()), Ids{11});
    EXPECT_EQ(tokenizer_in(directory.path()), "next");
    EXPECT_EQ(directory.names().size(), 4u) << "meta.json, a shard of two files, the tokenizer";
  }
  EXPECT_EQ(ended, Ended::kFinished);
  EXPECT_GT(crash, 10);
  EXPECT_EQ(outcomes, (std::set<std::optional<Ids>>{Ids{1, 2, 3, 4, 5}, Ids{6, 7, 8, 9, 10}}));
}

TEST(Shards, SoDoesAMachineThatLosesItsPower) {
  const TemporaryDirectory directory;
  for (const bool replace : {false, true}) {
    ShardOptions options{.vocab_size = 12, .eos = 0, .shard_tokens = 3, .replace = replace};
    options.tokenizer_files = {{"tokenizer.json", "text"}};
    const PowerLoss watch;
    write(directory.path(), kDocuments, options);
    EXPECT_EQ(watch.complaints(), std::vector<std::string>());
  }
}

TEST(Shards, AMetaOfSomethingElseIsNotReplaced) {
  const TemporaryDirectory directory;
  for (const char* text : {"{\"name\": \"mine\"}", "no JSON", ""}) {
    put(directory / "meta.json", text);
    for (const bool replace : {false, true}) {
      EXPECT_ERROR_HAS(write(directory.path(), {{7}}, {.vocab_size = 12, .replace = replace}),
                       "holds a meta.json that is none of a corpus of tokens; choose another directory or remove it");
    }
    EXPECT_EQ(contents(directory / "meta.json"), text);
    EXPECT_EQ(directory.names(), std::vector<std::string>{"meta.json"});
  }
}

TEST(Shards, TheTokenizerStaysWithItsTokens) {
  using Names = std::vector<std::string>;
  const Names with = {"meta.json", "shard-00000.bin", "shard-00000.idx", "tokenizer"};
  const TemporaryDirectory directory;
  put(directory / "tokenizer.json", "of something else");
  write(directory.path(), {{1}},
        {.vocab_size = 12, .tokenizer_files = {{"tokenizer.json", "one"}, {"tokenizer_config.json", "its settings"}}});
  EXPECT_EQ(contents(directory / "tokenizer/tokenizer_config.json"), "its settings");
  {
    ShardWriter writer(directory.path(),
                       {.vocab_size = 12, .tokenizer_files = {{"tokenizer.json", "two"}}, .replace = true});
    writer.append(Ids{2});
    EXPECT_EQ(contents(directory / "tokenizer/tokenizer.json"), "one");
    writer.finish();
  }
  EXPECT_EQ(contents(directory / "tokenizer.1/tokenizer.json"), "two");
  EXPECT_FALSE(std::filesystem::exists(directory / "tokenizer"));
  write(directory.path(), {{3}}, {.vocab_size = 12, .tokenizer = "bytes", .replace = true});
  EXPECT_EQ(directory.names(), (Names{"meta.json", "shard-00000.bin", "shard-00000.idx", "tokenizer.json"}));
  EXPECT_EQ(contents(directory / "tokenizer.json"), "of something else");
}

TEST(Shards, AFolderOfSomethingElseIsNotReplaced) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "tokenizer");
  put(directory / "tokenizer/mine", "one");
  const data::ShardOptions options{.vocab_size = 12, .tokenizer_files = {{"tokenizer.json", "two"}}};
  EXPECT_ERROR_HAS(write(directory.path(), {{7}}, options), "holds a folder tokenizer that is none of a corpus");
  EXPECT_EQ(contents(directory / "tokenizer/mine"), "one");
  std::filesystem::create_directory(directory / ".unfinished");  // killed while it moved its files
  write(directory.path(), {{7}}, options);
  EXPECT_EQ(contents(directory / "tokenizer/tokenizer.json"), "two");
}

TEST(Shards, OneWriterAtATime) {
  const TemporaryDirectory directory;
  {
    ShardWriter writer(directory.path(), {.vocab_size = 12});
    EXPECT_ERROR_HAS(ShardWriter(directory.path(), {.vocab_size = 12}), "another process writes there");
    writer.append(Ids{2});
    writer.finish();
  }
  EXPECT_EQ(ShardStore(directory.path()).size(), 1);
}

TEST(TokenizerFiles, GiveTheSameTokenizerWhereTheyArePut) {
  const TemporaryDirectory from;
  const std::filesystem::path golden = DELTANET_SOURCE_DIR "/tests/golden/tokenizers";
  std::filesystem::copy_file(golden / "gpt2.json", from / "tokenizer.json");
  std::filesystem::copy_file(golden / "llama3.json", from / "other.json");
  std::filesystem::copy_file(golden / "sentencepiece_bpe.model", from / "tokenizer.model");
  put(from / "tokenizer_config.json", "{\"eos_token\": \"</s>\"}");
  put(from / "config.json", "{}");
  for (const char* name : {"", "tokenizer.json", "other.json", "tokenizer.model"}) {
    const TemporaryDirectory to;
    const auto files = data::read_tokenizer_files((from / name).string());
    EXPECT_TRUE(files.contains("tokenizer_config.json"));
    EXPECT_FALSE(files.contains("config.json"));
    for (const auto& [file, text] : files) put(to / file, text);
    const auto one = load_tokenizer((from / name).string()), two = load_tokenizer(to.path().string());
    EXPECT_EQ(one->vocab_size(), two->vocab_size()) << name;
    EXPECT_EQ(one->eos(), two->eos()) << name;
    EXPECT_EQ(one->encode("Some words, 12."), two->encode("Some words, 12.")) << name;
  }
  EXPECT_TRUE(data::read_tokenizer_files("bytes").empty());
}

TEST(Shards, AFullDiskLeavesNoCorpus) {
  const TemporaryDirectory directory;
  {
    const FileSizeLimit limit(100);
    EXPECT_ERROR_HAS(write(directory.path(), {Ids(1000, 5)}, {.vocab_size = 12}), "File too large");
  }
  EXPECT_FALSE(data::is_token_directory(directory.path()));
  EXPECT_EQ(directory.names(), std::vector<std::string>{});
}

TEST(Shards, WrongIdsAndOptionsAreRefused) {
  const TemporaryDirectory directory;
  ShardWriter writer(directory.path(), {.vocab_size = 12});
  EXPECT_ERROR_HAS(writer.append(Ids{1, 12}), "given the id 12; expected 0 to 11");
  EXPECT_ERROR_HAS(writer.append(Ids{-1}), "given the id -1");
  EXPECT_ERROR_HAS(ShardWriter(directory.path(), {.vocab_size = 0}), "vocab_size: given 0");
  EXPECT_ERROR_HAS(ShardWriter(directory.path(), {.vocab_size = 5, .eos = 5}), "eos: given the id 5");
  EXPECT_ERROR_HAS(ShardWriter(directory.path(), {.vocab_size = 5, .shard_tokens = 0}), "shard_tokens: given 0");
  put(directory / "file", "");
  EXPECT_ERROR_HAS(ShardWriter(directory / "file/x", {.vocab_size = 5}), "file/x: ");
}

class DamagedShards : public testing::Test {
 protected:
  DamagedShards() { write(directory.path(), kDocuments, {.vocab_size = 12, .eos = 0, .shard_tokens = 6}); }

  // The error of opening and reading all after a file was changed; the file is restored.
  std::string error_after(const std::string& name, const std::string& text) {
    const std::string before = contents(directory / name);
    put(directory / name, text);
    const std::string error = error_of([&] { all_ids(ShardStore(directory.path())); });
    put(directory / name, before);
    return error;
  }
  std::string with_byte(const std::string& name, std::size_t at, char byte) {
    std::string text = contents(directory / name);
    text.at(at) = byte;
    return text;
  }

  const TemporaryDirectory directory;
};

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << "the error is: " << (text)

TEST_F(DamagedShards, SizesAndStartsAreChecked) {
  EXPECT_EQ(error_after("shard-00000.bin", contents(directory / "shard-00000.bin")), "");
  EXPECT_HAS(error_after("shard-00001.bin", "1234567"), "shard-00001.bin: given 7 bytes; expected 12 for 6 tokens");
  EXPECT_HAS(error_after("shard-00000.idx", ""), "shard-00000.idx: given 0 bytes; expected 16 for 2 documents");
  EXPECT_HAS(error_after("shard-00000.idx", with_byte("shard-00000.idx", 0, 1)), "document 0: given another start");
  EXPECT_HAS(error_after("shard-00000.idx", with_byte("shard-00000.idx", 8, 0)), "document 1: given the start 0");
  EXPECT_HAS(error_after("shard-00000.idx", with_byte("shard-00000.idx", 8, 6)),
             "document 1: given the start 6; expected one from 1 to 5");
  EXPECT_HAS(error_after("shard-00001.idx", with_byte("shard-00001.idx", 7, '\xff')), "document 0: given the start 18");
  std::filesystem::remove(directory / "shard-00002.bin");
  EXPECT_HAS(error_of([&] { const ShardStore store(directory.path()); }), "shard-00002.bin: No such file");
}

TEST_F(DamagedShards, IdsAreCheckedAsTheyAreRead) {
  EXPECT_HAS(error_after("shard-00001.bin", with_byte("shard-00001.bin", 4, 12)),
             "shard-00001.bin: token 2: given the id 12; expected at most 11");
}

TEST_F(DamagedShards, MetaIsChecked) {
  const std::string meta = contents(directory / "meta.json");
  const auto replaced = [&](const std::string& old_text, const std::string& new_text) {
    std::string text = meta;
    const std::size_t at = text.find(old_text);
    EXPECT_NE(at, std::string::npos) << old_text;
    return error_after("meta.json", text.replace(at, old_text.size(), new_text));
  };
  EXPECT_HAS(error_after("meta.json", ""), "expected JSON");
  EXPECT_HAS(error_after("meta.json", "[]"), "meta.json: given no object");
  EXPECT_HAS(error_after("meta.json", "{}"), "given no \"format\"");
  EXPECT_HAS(replaced("deltanet-tokens", "other"), "given format = \"other\"");
  EXPECT_HAS(replaced("\"version\": 1", "\"version\": 3"), "given version = \"3\"");
  EXPECT_HAS(replaced("\"version\": 1", "\"version\": 2"), "given no \"generation\"");
  EXPECT_HAS(replaced("\"version\": 1", "\"version\": 2,\n \"generation\": 2"), "an integer from 0 to 1");
  EXPECT_HAS(replaced("\"version\": 1", "\"version\": 2,\n \"generation\": 1"), "shard-00000.1.bin");
  EXPECT_HAS(replaced("u16", "u32"), "given dtype = \"u32\"; expected u16");
  EXPECT_HAS(replaced("\"largest_id\": 11", "\"largest_id\": 12"), "an integer from 0 to 11");
  EXPECT_HAS(replaced("\"largest_id\": 11", "\"largest_id\": -1"), "an integer from 0 to 11");
  EXPECT_HAS(replaced("\"eos\": 0", "\"eos\": \"0\""), "given eos = ");
  EXPECT_HAS(replaced("\"tokens\": 14", "\"tokens\": 15"), "an integer from 14 to 14");
  EXPECT_HAS(replaced("\"tokens\": 6", "\"tokens\": 18446744073709551615"), "shard 0: given tokens = ");
  EXPECT_HAS(replaced("\"shards\"", "\"others\""), "given no \"shards\"");
}

// A corpus of many files and blocks, some documents empty, one of them longer than a block.
void put_corpus(const TemporaryDirectory& directory) {
  std::string lines, text;
  for (int i = 0; i < 400; ++i) lines += "{\"text\": \"" + std::string(static_cast<std::size_t>(i % 37), 'j') + "\"}\n";
  for (int i = 0; i < 500; ++i) text += "line " + std::to_string(i) + "\n";
  put(directory / "a.jsonl", lines);
  put(directory / "b.txt", text);
  put(directory / "c.txt", "");
}

// Bytes that take their time for every third text, so that threads overtake each other.
class UnevenTokenizer final : public Tokenizer {
 public:
  Ids encode(std::string_view text, bool add_special) const override {
    if (++calls_ % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return bytes_->encode(text, add_special);
  }
  std::string piece(int32_t id) const override { return bytes_->piece(id); }
  std::optional<int32_t> id_of(std::string_view token) const override { return bytes_->id_of(token); }
  int64_t vocab_size() const override { return bytes_->vocab_size(); }
  std::optional<int32_t> bos() const override { return bytes_->bos(); }
  std::optional<int32_t> eos() const override { return bytes_->eos(); }
  std::unique_ptr<Decoding> start_decoding(bool skip) const override { return bytes_->start_decoding(skip); }

 private:
  std::unique_ptr<Tokenizer> bytes_ = byte_tokenizer();
  mutable std::atomic<int> calls_ = 0;
};

std::vector<Ids> tokenized(const TemporaryDirectory& directory, int threads) {
  TextSource source({directory.path().string()}, {.block_bytes = 100});
  std::vector<Ids> documents(1);
  int64_t done = 0;
  tokenize(
      source, UnevenTokenizer(), threads,
      [&](std::span<const int32_t> ids, bool ends_document) {
        documents.back().insert(documents.back().end(), ids.begin(), ids.end());
        if (ends_document) documents.emplace_back();
      },
      [&](int64_t bytes) {
        EXPECT_LE(done, bytes);
        done = bytes;
      });
  EXPECT_EQ(done, source.bytes_total());
  return documents;
}

TEST(Tokenize, GivesTheSameForAnyNumberOfThreads) {
  const TemporaryDirectory directory;
  put_corpus(directory);
  const std::vector<Ids> one = tokenized(directory, 1);
  EXPECT_EQ(one.size(), 403u);  // 400 lines, two files, the open one
  for (std::size_t i = 0; i < 400; ++i) EXPECT_EQ(one[i], Ids(i % 37, 'j'));
  for (const int threads : {2, 3, 8}) EXPECT_EQ(tokenized(directory, threads), one) << threads;
}

TEST(Tokenize, BlocksDoNotChangeTheTokensOfText) {
  const TemporaryDirectory directory;
  std::string text;
  for (int i = 0; i < 300; ++i)
    text += "The " + std::to_string(i) + "th line.\n" + std::string(i % 3, '\n') + "  and more,\n";
  put(directory / "a.txt", text);
  for (const char* name : {"gpt2.json", "llama3.json"}) {
    const auto tokenizer = load_tokenizer(std::string(DELTANET_SOURCE_DIR "/tests/golden/tokenizers/") + name);
    TextSource source({directory / "a.txt"}, {.block_bytes = 200});
    EXPECT_EQ(all_ids(*tokenize_to_memory(source, *tokenizer, {}, 2)), tokenizer->encode(text)) << name;
  }
}

TEST(Tokenize, TheFirstErrorOfTheCorpusIsReported) {
  const TemporaryDirectory directory;
  put_corpus(directory);
  std::string lines;
  for (int i = 0; i < 300; ++i) lines += i == 123 || i == 130 || i == 250 ? "bad\n" : "{\"text\": \"good\"}\n";
  put(directory / "a.jsonl", lines);
  for (const int threads : {1, 2, 8}) {
    EXPECT_HAS(error_of([&] { tokenized(directory, threads); }), "a.jsonl: line 124]") << threads;
  }
  put(directory / "b.txt.gz", "damaged");  // before a.jsonl is wrong, after it is right
  EXPECT_HAS(error_of([&] { tokenized(directory, 8); }), "a.jsonl: line 124]");
  put(directory / "a.jsonl", "{\"text\": \"good\"}\n");
  EXPECT_HAS(error_of([&] { tokenized(directory, 8); }), "b.txt.gz: given damaged");
}

TEST(Tokenize, AnErrorOfTheSinkEndsTheWork) {
  const TemporaryDirectory directory;
  put_corpus(directory);
  TextSource source({directory.path().string()}, {.block_bytes = 100});
  int calls = 0;
  const auto sink = [&](std::span<const int32_t>, bool) {
    if (++calls == 5) throw Error("full");
  };
  EXPECT_EQ(error_of([&] { tokenize(source, *byte_tokenizer(), 4, sink); }), "full");
  EXPECT_EQ(calls, 5);
}

TEST(Tokenize, MemoryAndShardsAgree) {
  const TemporaryDirectory directory, corpus;
  put_corpus(directory);
  TextSource for_memory({directory.path().string()}), for_shards({directory.path().string()});
  const auto memory = tokenize_to_memory(for_memory, *byte_tokenizer(), 10, 2);
  ShardWriter writer(corpus.path(), {.vocab_size = 256, .eos = 10, .shard_tokens = 1000});
  tokenize(for_shards, *byte_tokenizer(), 2, [&](std::span<const int32_t> ids, bool ends_document) {
    writer.append(ids);
    if (ends_document) writer.end_document();
  });
  writer.finish();
  const ShardStore shards(corpus.path());
  EXPECT_EQ(all_ids(*memory), all_ids(shards));
  EXPECT_EQ(memory->document_starts(0, memory->size()), shards.document_starts(0, shards.size()));
  EXPECT_EQ(memory->largest_id(), shards.largest_id());
  EXPECT_EQ(shards.meta().documents(), 400 - 11 + 1);  // those with text
  EXPECT_ERROR_HAS(check_vocabulary(shards, 100), "shard-00000.bin: token 0: given the id 106; expected ids below 100");
}

}  // namespace
}  // namespace deltanet::test
