// Files: mapping and reading report what is wrong; a replaced file has the old contents or the new, and no temporary
// stays behind, whatever fails.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "file_size_limit.h"
#include "temporary_directory.h"

namespace deltanet::test {
namespace {

namespace fs = std::filesystem;

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

#define EXPECT_ERROR_HAS(call, part)                                             \
  do {                                                                           \
    const std::string error = error_of([&] { call; });                           \
    EXPECT_NE(error.find(part), std::string::npos) << "the error is: " << error; \
  } while (false)

TEST(MappedFile, HoldsTheBytesOfTheFile) {
  const TemporaryDirectory directory;
  put(directory / "a", "some bytes");
  put(directory / "empty", "");
  for (const auto access : {MappedFile::Access::kSequential, MappedFile::Access::kRandom}) {
    EXPECT_EQ(text_of(MappedFile(directory / "a", access)), "some bytes");
    EXPECT_TRUE(MappedFile(directory / "empty", access).bytes().empty());
  }
}

TEST(MappedFile, SurvivesBeingMovedAndReplacedOnDisk) {
  const TemporaryDirectory directory;
  put(directory / "a", "old");
  put(directory / "b", "other");
  MappedFile first(directory / "a");
  MappedFile second = std::move(first);
  AtomicFile file(directory / "a");
  file.write("new contents");
  file.commit();
  EXPECT_EQ(text_of(second), "old");
  second = MappedFile(directory / "b");
  EXPECT_EQ(text_of(second), "other");
}

TEST(MappedFile, ErrorsNameFileAndReason) {
  const TemporaryDirectory directory;
  EXPECT_ERROR_HAS(MappedFile(directory / "none"), (directory / "none").string() + ": No such file");
  EXPECT_ERROR_HAS(MappedFile(directory.path()), "Is a directory");
  ASSERT_EQ(mkfifo((directory / "pipe").c_str(), 0600), 0);
  EXPECT_ERROR_HAS(MappedFile(directory / "pipe"), "not a file");
}

TEST(ReadFile, ReadsUpToTheLimitAndNoFurther) {
  const TemporaryDirectory directory;
  put(directory / "a", std::string("12345\0789", 9));
  EXPECT_EQ(read_file(directory / "a", 9), std::string("12345\0789", 9));
  EXPECT_ERROR_HAS(read_file(directory / "a", 8), "given 9 bytes; expected at most 8");
  EXPECT_ERROR_HAS(read_file(directory / "none", 8), "No such file");
  EXPECT_ERROR_HAS(read_file(directory.path(), 8), "Is a directory");
}

TEST(AtomicFile, WritesSmallAndLargePiecesInOrder) {
  const TemporaryDirectory directory;
  std::string expected;
  AtomicFile file(directory / "a");
  for (const size_t size : {1u, 1000u, 1u << 20, 3u, (5u << 20) + 7, 0u, (1u << 20) - 1, 2u}) {
    const std::string piece(size, static_cast<char>('a' + size % 26));
    file.write(piece);
    expected += piece;
  }
  EXPECT_FALSE(fs::exists(directory / "a"));
  file.commit();
  EXPECT_EQ(contents(directory / "a"), expected);
  EXPECT_EQ(directory.names(), std::vector<std::string>{"a"});
  EXPECT_ERROR_HAS(file.write("more"), "already complete");
  EXPECT_ERROR_HAS(file.commit(), "already complete");
}

TEST(AtomicFile, WithoutCommitNothingChanges) {
  const TemporaryDirectory directory;
  put(directory / "a", "old");
  {
    AtomicFile file(directory / "a");
    file.write("new");
    file.prepare();
    EXPECT_EQ(directory.names().size(), 2u) << "there is no temporary beside the target";
  }
  EXPECT_EQ(contents(directory / "a"), "old");
  EXPECT_EQ(directory.names(), std::vector<std::string>{"a"});
}

TEST(AtomicFile, AFullDiskLeavesTheOldFileAndNoTemporary) {
  const TemporaryDirectory directory;
  put(directory / "a", "old");
  const FileSizeLimit limit(3 << 20);
  const std::string large(4 << 20, 'x'), small(1 << 19, 'x');
  const auto write_large = [&] { AtomicFile(directory / "a").write(large); };
  const auto write_small_ones = [&] {
    AtomicFile file(directory / "a");
    for (int i = 0; i < 7; ++i) file.write(small);  // the last ones are still in the buffer
    file.commit();
  };
  EXPECT_ERROR_HAS(write_large(), (directory / "a").string() + ": File too large");
  EXPECT_ERROR_HAS(write_small_ones(), (directory / "a").string() + ": File too large");
  EXPECT_EQ(contents(directory / "a"), "old");
  EXPECT_EQ(directory.names(), std::vector<std::string>{"a"});
}

TEST(AtomicFile, ARefusedRenamingLeavesNoTemporary) {
  const TemporaryDirectory directory;
  fs::create_directory(directory / "a");
  const auto write = [&] {
    AtomicFile file(directory / "a");
    file.write("new");
    file.commit();
  };
  EXPECT_ERROR_HAS(write(), (directory / "a").string() + ": Is a directory");
  EXPECT_EQ(directory.names(), std::vector<std::string>{"a"});
}

TEST(AtomicFile, ErrorsNameFileAndReason) {
  const TemporaryDirectory directory;
  EXPECT_ERROR_HAS(AtomicFile(directory / "none/a"), (directory / "none/a").string() + ": No such file");
  fs::permissions(directory.path(), fs::perms::owner_read | fs::perms::owner_exec);
  constexpr uid_t kNobody = 65534;
  const bool root = geteuid() == 0;  // root may write everywhere: be someone else for a moment
  if (root && seteuid(kNobody) != 0) GTEST_SKIP() << "root cannot become another user here";
  EXPECT_ERROR_HAS(AtomicFile(directory / "a"), (directory / "a").string() + ": Permission denied");
  EXPECT_ERROR_HAS(MappedFile(directory / "a"), "[open] " + (directory / "a").string());
  ASSERT_TRUE(!root || seteuid(0) == 0);
  fs::permissions(directory.path(), fs::perms::owner_all);
}

TEST(AtomicFile, KeepsPermissionsOfTheReplacedFile) {
  const TemporaryDirectory directory;
  put(directory / "a", "old");
  fs::permissions(directory / "a", fs::perms(0640));
  AtomicFile file(directory / "a");
  file.commit();
  EXPECT_EQ(fs::status(directory / "a").permissions(), fs::perms(0640));
  EXPECT_EQ(contents(directory / "a"), "");
}

TEST(AtomicFile, TemporariesOfDeadProcessesAreRemovedAndThoseInUseStay) {
  const TemporaryDirectory directory;
  const pid_t child = fork();
  if (child == 0) {
    const AtomicFile file(directory / "dead");
    _exit(0);  // without the destructor, as if killed
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  AtomicFile alive(directory / "alive");
  put(directory / ".hidden", "");
  ASSERT_EQ(directory.names().size(), 3u);
  remove_abandoned(directory.path());
  EXPECT_EQ(directory.names().size(), 2u);
  alive.commit();
  EXPECT_EQ(directory.names(), (std::vector<std::string>{".hidden", "alive"}));
}

TEST(ParseJson, RefusesWhatTheParserWouldAccept) {
  EXPECT_EQ(parse_json(R"({"a": [1, {"a": 2}]})", "x")["a"][1]["a"], 2);
  EXPECT_ERROR_HAS(parse_json(R"({"a": 1, "a": 2})", "x"), "[x] \"a\" is given twice");
  EXPECT_ERROR_HAS(parse_json(R"({"b": {"c": 1, "a": 2, "c": 1}})", "x"), "[x] \"c\" is given twice");
  EXPECT_ERROR_HAS(parse_json(std::string("{}\0x", 4), "x"), "zero byte at byte 2");
  EXPECT_ERROR_HAS(parse_json(std::string(100'000, '['), "x"), "nested deeper than 64");
  EXPECT_ERROR_HAS(parse_json("{} {}", "x"), "[x] at byte 4");
  EXPECT_ERROR_HAS(parse_json("\"\xff\"", "x"), "expected JSON");
  EXPECT_ERROR_HAS(parse_json("1e999", "x"), "numbers that a double can hold");
  EXPECT_ERROR_HAS(parse_json("", "x"), "expected JSON");
}

TEST(InQuotes, IsSafeToPrint) {
  EXPECT_EQ(in_quotes("a\n\x1b\""), R"("a\n\u001b\"")");
  EXPECT_EQ(in_quotes("\xff"), "\"\xef\xbf\xbd\"");
  EXPECT_EQ(in_quotes(std::string(300, 'a')), "\"" + std::string(200, 'a') + "\"...");
}

}  // namespace
}  // namespace deltanet::test
