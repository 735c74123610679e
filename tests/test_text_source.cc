// Text sources: documents come out as they are in the files, whatever the size of the blocks and the packing; what is
// wrong with a file is said with its name and line.

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <memory>

#include "data/corpus/text_source.h"
#include "temporary_directory.h"

namespace deltanet::test {
namespace {

using data::Split;
using data::TextBlock;
using data::TextOptions;
using data::TextSource;
using Documents = std::vector<std::string>;

const std::filesystem::path kGolden = std::filesystem::path(DELTANET_SOURCE_DIR) / "tests/golden/text";

#define EXPECT_ERROR_HAS(call, part)                                             \
  do {                                                                           \
    const std::string error = error_of([&] { call; });                           \
    EXPECT_NE(error.find(part), std::string::npos) << "the error is: " << error; \
  } while (false)

// All documents that have text.
Documents read_all(const std::vector<std::string>& inputs, const TextOptions& options = {}) {
  TextSource source(inputs, options);
  Documents documents;
  std::string open;
  TextBlock block;
  int64_t done = 0;
  while (source.next(block)) {
    EXPECT_LE(done, block.bytes_done);
    done = block.bytes_done;
    source.split(block, [&](std::string_view text, bool ends_document) {
      open += text;
      if (!ends_document) return;
      if (!open.empty()) documents.push_back(open);
      open.clear();
    });
  }
  EXPECT_TRUE(open.empty()) << "the last document has no end";
  EXPECT_EQ(done, source.bytes_total());
  return documents;
}

std::string numbers_text() {
  std::string text;
  for (int i = 0; i < 50000; ++i) {
    text += std::to_string(i % 97) + " squared is " + std::to_string(i % 97 * (i % 97)) + "\n";
  }
  return text;
}

constexpr std::size_t kBlockSizes[] = {20, 21, 23, 64, 1000, 1 << 20};

TEST(TextSource, AFileIsOneDocumentForAllBlockSizes) {
  const TemporaryDirectory directory;
  const std::string text = "Ein Satz.\n\n  Noch einer, etwas länger.\r\n" + std::string(300, 'x') + "\n äöü ohne Ende";
  put(directory / "a.txt", text);
  for (const std::size_t size : kBlockSizes) {
    EXPECT_EQ(read_all({directory / "a.txt"}, {.block_bytes = size}), Documents{text}) << size;
  }
}

TEST(TextSource, BlocksOfTextEndAtLinesAndBetweenCharacters) {
  const TemporaryDirectory directory;
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += "a line of words\n";
  put(directory / "lines.txt", lines);
  std::string umlauts;
  for (int i = 0; i < 200; ++i) umlauts += "ä";
  put(directory / "umlauts.txt", umlauts);
  put(directory / "words.txt", std::string(90, 'x') + " word word word " + std::string(100, 'x'));
  const auto blocks = [&](const std::string& name) {
    TextSource source({directory / name}, {.block_bytes = 101});
    std::vector<TextBlock> found(1);
    while (source.next(found.back())) found.emplace_back();
    found.pop_back();
    return found;
  };
  int64_t line = 1;
  for (const TextBlock& block : blocks("lines.txt")) {
    EXPECT_EQ(block.line, line);
    EXPECT_TRUE(block.bytes.ends_with("\n") || block.ends_file);
    EXPECT_LE(block.bytes.size(), 101u);
    line += std::count(block.bytes.begin(), block.bytes.end(), '\n');
  }
  EXPECT_EQ(line, 201);
  for (const TextBlock& block : blocks("umlauts.txt")) EXPECT_EQ(block.bytes.size() % 2, 0u);
  EXPECT_EQ(blocks("words.txt")[1].bytes.substr(0, 5), " word");
}

TEST(TextSource, BlankLinesSplit) {
  const TemporaryDirectory directory;
  put(directory / "a.txt", "\n\none\nstill one\n\n\n \t\r\ntwo\n  indented\r\n\r\nthree");
  const Documents expected = {"one\nstill one\n", "two\n  indented\r\n", "three"};
  for (const std::size_t size : kBlockSizes) {
    EXPECT_EQ(read_all({directory / "a.txt"}, {.split = Split::kBlankLines, .block_bytes = size}), expected) << size;
  }
}

TEST(TextSource, SeparatorsSplitAndAreNeverCut) {
  const TemporaryDirectory directory;
  // The second has places where text is cut, the third is only cut between characters.
  for (const std::string separator : {"<|end|>", "| x y z |", "ababab"}) {
    std::string text;
    Documents expected;
    for (int i = 1; i < 60; ++i) {
      expected.push_back(std::string(static_cast<std::size_t>(i), 'a') + (separator == "<|end|>" ? "\n" : "c"));
      text += expected.back() + separator;
    }
    put(directory / "a.txt", text);
    for (const std::size_t size : kBlockSizes) {
      const TextOptions options{.split = Split::kSeparator, .separator = separator, .block_bytes = size};
      EXPECT_EQ(read_all({directory / "a.txt"}, options), expected) << separator << " " << size;
    }
  }
  EXPECT_ERROR_HAS(TextSource({directory / "a.txt"}, {.split = Split::kSeparator}), "separator: given \"\"");
  EXPECT_ERROR_HAS(TextSource({directory / "a.txt"}, {.block_bytes = 3}), "block_bytes: given 3");
}

TEST(TextSource, JsonLinesAreDocuments) {
  const TemporaryDirectory directory;
  const std::string longest(5000, 'y');
  put(directory / "a.jsonl",
      "{\"text\": \"one\\nline\"}\n\n{\"id\": 7, \"text\": \"zwei \\u00e4\"}\r\n{\"text\": \"\"}\n{\"text\": \"" +
          longest + "\"}\n{\"text\": \"last\"}");
  for (const std::size_t size : kBlockSizes) {
    EXPECT_EQ(read_all({directory / "a.jsonl"}, {.block_bytes = size}),
              (Documents{"one\nline", "zwei ä", longest, "last"}))
        << size;
  }
  put(directory / "b.ndjson", "{\"body\": \"b\"}\n");
  EXPECT_EQ(read_all({directory / "b.ndjson"}, {.field = "body"}), Documents{"b"});
}

TEST(TextSource, BadJsonIsNamedByFileAndLine) {
  const TemporaryDirectory directory;
  const std::string good = "{\"text\": \"a document of some words\"}\n", name = (directory / "a.jsonl").string();
  const auto error_for = [&](const std::string& line) {
    put(directory / "a.jsonl", good + good + "\n" + line + "\n" + good);
    // Blocks of a line or two: the number must survive them.
    return error_of([&] { read_all({name}, {.block_bytes = 40}); });
  };
  for (const char* line : {"{\"text\": \"x\"", "{\"text\": \"x\"} {}", "nonsense", "{\"text\": \"\xff\"}",
                           "{\"text\": 3}", "{\"other\": \"x\"}", "[\"text\"]", "{}", "{\"text\": null}"}) {
    const std::string error = error_for(line);
    EXPECT_NE(error.find(name + ": line 4"), std::string::npos) << line << ": " << error;
  }
  EXPECT_EQ(error_for(good), "");
  EXPECT_ERROR_HAS(read_all({(directory / "a.jsonl").string()}, {.field = "body"}),
                   "line 1: given the fields \"text\"; expected an object with a text in \"body\"");
}

TEST(TextSource, PackedFilesReadAsPlainOnes) {
  const std::string text = numbers_text();
  for (const char* name : {"numbers.txt.gz", "numbers.txt.zst"}) {
    EXPECT_TRUE(read_all({(kGolden / name).string()}) == Documents{text}) << name;
    const TemporaryDirectory directory;  // several members in one file
    put(directory / name, contents(kGolden / name) + contents(kGolden / name));
    EXPECT_TRUE(read_all({(directory / name).string()}) == Documents{text + text}) << name;
  }
  EXPECT_EQ(read_all({(kGolden / "two.jsonl.gz").string()}), (Documents{"first", "second\nline"}));
}

TEST(TextSource, DamagedPackedFilesAreErrors) {
  const TemporaryDirectory directory;
  for (const std::string suffix : {".gz", ".zst"}) {
    const std::string packed = contents(kGolden / ("numbers.txt" + suffix));
    const std::string path = (directory / ("a.txt" + suffix)).string();
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, std::size_t{9}, packed.size() / 2, packed.size() - 1}) {
      put(path, packed.substr(0, size));
      EXPECT_ERROR_HAS(read_all({path}), path + ": given ");
      EXPECT_ERROR_HAS(read_all({path}), "end too early");
      EXPECT_ERROR_HAS(read_all({path}), "(in line ");
    }
    std::string changed = packed;
    changed[changed.size() / 2] ^= 0x55;
    put(path, changed);
    EXPECT_ERROR_HAS(read_all({path}), path + ": given damaged");
    put(path, packed + "garbage");
    EXPECT_ERROR_HAS(read_all({path}), path + ": given ");
    put(path, "no packed data at all");
    EXPECT_ERROR_HAS(read_all({path}), path + ": given damaged");
  }
}

TEST(TextSource, ZerosBehindGzipAreNothing) {
  const TemporaryDirectory directory;
  const std::string packed = contents(kGolden / "numbers.txt.gz"), path = (directory / "a.txt.gz").string();
  const std::string zeros(300'000, '\0');  // more than one piece that is read
  put(path, packed + zeros);
  EXPECT_TRUE(read_all({path}) == Documents{numbers_text()});
  put(path, packed + zeros + packed);
  EXPECT_TRUE(read_all({path}) == Documents{numbers_text() + numbers_text()});
  put(path, packed + zeros + "x");
  EXPECT_ERROR_HAS(read_all({path}), "end too early");
  put(path, zeros);
  EXPECT_ERROR_HAS(read_all({path}), "given damaged");
}

// Megabytes that are packed into a few bytes: the last bytes of the file are read long before its last text comes out.
TEST(TextSource, WhatIsPackedTightlyIsReadToItsEnd) {
  const TemporaryDirectory directory;
  const auto frame_of = [](std::size_t size) {
    const std::string text(size, 'a');
    std::string frame(ZSTD_compressBound(size), '\0');
    frame.resize(ZSTD_compress(frame.data(), frame.size(), text.data(), size, 1));
    return frame;
  };
  // The only block of the second frame fits only in part into a piece of 2^18 bytes.
  put(directory / "two.txt.zst", frame_of(200'000) + frame_of(100'000));
  EXPECT_TRUE(read_all({directory / "two.txt.zst"}) == Documents{std::string(300'000, 'a')});
  for (const std::size_t size : {(std::size_t{1} << 18) - 1, std::size_t{1} << 18, std::size_t{3'000'000}}) {
    std::string text(size, 'a');
    text.back() = 'b';
    std::string packed(ZSTD_compressBound(size), '\0');
    packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), size, 1));
    ASSERT_LT(packed.size(), 1000u);
    put(directory / "a.txt.zst", packed);
    EXPECT_TRUE(read_all({directory / "a.txt.zst"}) == Documents{text}) << size;
    put(directory / "a.txt.zst", packed + packed);
    EXPECT_TRUE(read_all({directory / "a.txt.zst"}) == Documents{text + text}) << size;

    packed.resize(compressBound(size) + 100);
    z_stream stream{};
    constexpr int kGzip = 16 + MAX_WBITS, kMemory = 8;
    ASSERT_EQ(deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzip, kMemory, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = reinterpret_cast<Bytef*>(text.data());
    stream.avail_in = static_cast<uInt>(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(packed.data());
    stream.avail_out = static_cast<uInt>(packed.size());
    ASSERT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
    packed.resize(stream.total_out);
    deflateEnd(&stream);
    put(directory / "a.txt.gz", packed + packed);
    EXPECT_TRUE(read_all({directory / "a.txt.gz"}) == Documents{text + text}) << size;
  }
}

TEST(TextSource, LargeWindowsOfZstandardAreRead) {
  const TemporaryDirectory directory;
  for (const int window_log : {27, 28, 30}) {
    // In two steps, since a window is never larger than a text of known size.
    const std::unique_ptr<ZSTD_CCtx, std::size_t (*)(ZSTD_CCtx*)> context(ZSTD_createCCtx(), ZSTD_freeCCtx);
    ZSTD_CCtx_setParameter(context.get(), ZSTD_c_windowLog, window_log);
    ZSTD_CCtx_setParameter(context.get(), ZSTD_c_hashLog, 10);
    ZSTD_CCtx_setParameter(context.get(), ZSTD_c_strategy, ZSTD_fast);
    std::string packed(1000, '\0');
    ZSTD_outBuffer output{packed.data(), packed.size(), 0};
    ZSTD_inBuffer input{"one two", 7, 0};
    ZSTD_compressStream2(context.get(), &output, &input, ZSTD_e_flush);
    ASSERT_EQ(ZSTD_compressStream2(context.get(), &output, &input, ZSTD_e_end), 0u);
    packed.resize(output.pos);
    put(directory / "a.txt.zst", packed);
    EXPECT_EQ(read_all({directory / "a.txt.zst"}), Documents{"one two"}) << window_log;
  }
}

TEST(TextSource, HalvesOfSurrogatePairsAreReplacedAndCounted) {
  const TemporaryDirectory directory;
  put(directory / "a.jsonl", R"({"text": "a\uD83Db \ud83d\uDE00 \uDE00\ud83d", "other": "\udfff"})"
                             "\n"
                             R"({"text": "\\ud83d \\\ud83d\ud83d\ude00 \u00e4\u5929"})"
                             "\n"
                             R"({"te\u0078t": "\udbff\udc00\ud7ff\ue000"})"
                             "\n");
  TextSource source({directory / "a.jsonl"});
  TextBlock block;
  Documents documents;
  while (source.next(block)) {
    source.split(block, [&](std::string_view text, bool) { documents.emplace_back(text); });
  }
  EXPECT_EQ(documents, (Documents{"a\uFFFDb \U0001F600 \uFFFD\uFFFD", "\\ud83d \\\uFFFD\U0001F600 ä天",
                                  "\U0010FC00\uD7FF\uE000"}));
  EXPECT_EQ(source.replaced_surrogates(), 5);
  for (const char* line :
       {R"({"text": "\ud83)", R"({"text": "\ud83d)", R"({"text": "\ud83d\)", R"({"text": "\udg00"})"}) {
    put(directory / "a.jsonl", line);
    EXPECT_ERROR_HAS(read_all({directory / "a.jsonl"}), "a.jsonl: line 1");
  }
}

TEST(TextSource, WhatIsHiddenOrTokenizedIsNoCorpus) {
  const TemporaryDirectory directory;
  namespace fs = std::filesystem;
  const auto write = [&](const std::string& name) {
    fs::create_directories((directory / name).parent_path());
    put(directory / name, name.ends_with("json") ? "{\"text\": \"" + name + "\"}" : name);
  };
  for (const char* name : {".git/a.txt", "sub/.cache/deep/b.txt", "out/meta.json", "out/tokenizer/c.txt",
                           "out/tokenizer.1/c.txt", "out/shard-00000.1.bin", "out/.unfinished/d.txt",
                           "half/.unfinished/e.txt", "half/tokenizer/f.json", ".g.txt"}) {
    write(name);
  }
  const std::vector<std::string> all = {directory.path().string()};
  EXPECT_ERROR_HAS(TextSource{all}, "given a directory without such files");
  for (const char* name : {"other/meta.json", "other/tokenizer/g.txt", "out/h.txt", "half/sub/i.txt", "z.txt"})
    write(name);
  const Documents expected = {"half/sub/i.txt", "other/meta.json", "other/tokenizer/g.txt", "out/h.txt", "z.txt"};
  EXPECT_EQ(read_all(all), expected);
  // A folder that is named, or that is the output itself.
  EXPECT_EQ(read_all({directory / ".git"}), Documents{".git/a.txt"});
  EXPECT_EQ(read_all({directory / "out"}), Documents{"out/h.txt"});
  fs::remove_all(directory / "out/.unfinished");
  EXPECT_EQ(read_all({directory / "out"}), Documents{"out/h.txt"});
  put(directory / "out/shard-00000.bin", "");  // of either generation
  fs::remove(directory / "out/shard-00000.1.bin");
  EXPECT_EQ(read_all({directory / "out"}), Documents{"out/h.txt"});
  fs::remove(directory / "out/shard-00000.bin");
  EXPECT_EQ(read_all({directory / "out"}),
            (Documents{"out/h.txt", "out/meta.json", "out/tokenizer/c.txt", "out/tokenizer.1/c.txt"}));
}

TEST(TextSource, DirectoriesAreReadByName) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "sub");
  put(directory / "b.txt", "b");
  put(directory / "a.jsonl", "{\"text\": \"a\"}\n");
  put(directory / "sub/c.md", "c");
  put(directory / "ignored.bin", "x");
  put(directory / ".hidden.txt", "x");
  EXPECT_EQ(read_all({directory.path().string()}), (Documents{"a", "b", "c"}));
  EXPECT_EQ(read_all({directory / "b.txt", directory / "ignored.bin", directory / "b.txt"}),
            (Documents{"b", "x", "b"}));
}

TEST(TextSource, NothingToReadIsAnError) {
  const TemporaryDirectory directory;
  EXPECT_ERROR_HAS(TextSource(std::vector<std::string>{}), "inputs: given none");
  EXPECT_ERROR_HAS(TextSource({directory / "none.txt"}), "none.txt: does not exist");
  EXPECT_ERROR_HAS(TextSource({directory.path().string()}), "given a directory without such files");
  put(directory / "empty.txt", "");
  EXPECT_EQ(read_all({directory / "empty.txt"}), Documents{});
}

}  // namespace
}  // namespace deltanet::test
