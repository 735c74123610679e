// Files: reading reports what is wrong; a replaced file has the old contents or the new, and no temporary
// stays behind, whatever fails.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "file_calls.h"
#include "file_size_limit.h"
#include "temporary_directory.h"

namespace deltanet::test {
namespace {

namespace fs = std::filesystem;

std::string text_of(const FileReader& file) {
  std::string text(static_cast<std::size_t>(file.size()), '?');
  file.read(0, file.size(), text.data());
  return text;
}

#define EXPECT_ERROR_HAS(call, part)                                             \
  do {                                                                           \
    const std::string error = error_of([&] { call; });                           \
    EXPECT_NE(error.find(part), std::string::npos) << "the error is: " << error; \
  } while (false)

TEST(FileReader, HoldsTheBytesOfTheFile) {
  const TemporaryDirectory directory;
  put(directory / "a", "some bytes");
  put(directory / "empty", "");
  for (const auto access : {FileReader::Access::kSequential, FileReader::Access::kRandom}) {
    EXPECT_EQ(text_of(FileReader(directory / "a", access)), "some bytes");
    EXPECT_EQ(text_of(FileReader(directory / "empty", access)), "");
  }
}

TEST(FileReader, SurvivesBeingMovedAndReplacedOnDisk) {
  const TemporaryDirectory directory;
  put(directory / "a", "old");
  put(directory / "b", "other");
  FileReader first(directory / "a");
  FileReader second = std::move(first);
  AtomicFile file(directory / "a");
  file.write("new contents");
  file.commit();
  EXPECT_EQ(text_of(second), "old");
  second = FileReader(directory / "b");
  EXPECT_EQ(text_of(second), "other");
}

TEST(FileReader, AFileThatBecomesShorterIsAnError) {
  const TemporaryDirectory directory;
  const std::string text(100'000, 'x');
  put(directory / "a", text);
  const FileReader file(directory / "a");
  std::string read(text.size(), '?');
  file.read(99'990, 10, read.data());
  EXPECT_EQ(read.substr(0, 11), "xxxxxxxxxx?");
  EXPECT_ERROR_HAS(file.read(99'990, 11, read.data()), "ends at byte 100000; expected 100001 bytes");
  fs::resize_file(directory / "a", 50'000);  // in the middle of a page
  file.read(0, 50'000, read.data());
  EXPECT_EQ(file.size(), 100'000);
  EXPECT_ERROR_HAS(file.read(0, 100'000, read.data()), "a: ends at byte 50000; expected 100000 bytes: it was made");
  EXPECT_ERROR_HAS(file.read(90'000, 1, read.data()), "a: ends at byte 90000; expected 100000 bytes");
}

TEST(FileReader, ErrorsNameFileAndReason) {
  const TemporaryDirectory directory;
  EXPECT_ERROR_HAS(FileReader(directory / "none"), (directory / "none").string() + ": No such file");
  EXPECT_ERROR_HAS(FileReader(directory.path()), "Is a directory");
  ASSERT_EQ(mkfifo((directory / "pipe").c_str(), 0600), 0);
  EXPECT_ERROR_HAS(FileReader(directory / "pipe"), "not a file");
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

// Contents before the name, and the name before commit() returns; also where all that changes is a part of it.
TEST(AtomicFile, IsOnDiskWhenItHasItsName) {
  const TemporaryDirectory directory;
  for (const size_t size : {0u, 10u, 3u << 20}) {
    for (const bool prepares : {false, true}) {
      for (const char* name : {"new", "new"}) {  // the second time it is replaced
        const PowerLoss watch;
        AtomicFile file(directory / name);
        file.write(std::string(size, 'x'));
        if (size > 0) file.overwrite(static_cast<int64_t>(size) - 1, "y");
        if (prepares) file.prepare();
        file.commit();
        EXPECT_EQ(watch.complaints(), std::vector<std::string>());
        EXPECT_EQ(watch.unfinished(), std::vector<std::string>());
      }
    }
  }
}

TEST(SyncFile, PutsWhatWasAppendedOnDisk) {
  const TemporaryDirectory directory;
  const int file = open((directory / "a").c_str(), O_WRONLY | O_CREAT, 0600);
  const PowerLoss watch;
  ASSERT_EQ(write(file, "line\n", 5), 5);
  sync_file(directory / "a");
  fs::rename(directory / "a", directory / "b");
  EXPECT_EQ(watch.complaints(), std::vector<std::string>());
  EXPECT_EQ(watch.unfinished(), std::vector<std::string>{directory.path().string()});
  sync_directory(directory.path());
  EXPECT_EQ(watch.unfinished(), std::vector<std::string>());
  ASSERT_EQ(write(file, "more\n", 5), 5);
  fs::rename(directory / "b", directory / "a");
  EXPECT_EQ(watch.complaints().size(), 1u) << "the test would not notice";
  close(file);
}

TEST(AtomicFile, OverwritesWhatItWrote) {
  const TemporaryDirectory directory;
  AtomicFile file(directory / "a");
  file.write("0123456789");
  file.overwrite(3, "abc");
  file.write("end");
  file.overwrite(12, "D");
  file.commit();
  EXPECT_EQ(contents(directory / "a"), "012abc6789enD");
  EXPECT_ERROR_HAS(file.overwrite(0, "x"), "already complete");
}

TEST(AtomicFile, SymbolicLinksStayAndTheirFilesAreReplaced) {
  const TemporaryDirectory directory, other;
  put(other / "file", "old");
  fs::create_symlink(other / "file", directory / "absolute");
  fs::create_symlink("absolute", directory / "chain");
  fs::create_symlink(other / "new", directory / "dangling");
  fs::create_directory(directory / "folder");
  fs::create_symlink("../chain", directory / "folder/up");
  const auto write = [&](const char* name, const char* text) {
    AtomicFile file(directory / name);
    file.write(text);
    EXPECT_EQ(directory.names(), (std::vector<std::string>{"absolute", "chain", "dangling", "folder"}));
    file.commit();
    EXPECT_TRUE(fs::is_symlink(directory / name)) << name;
  };
  for (const char* name : {"absolute", "chain", "folder/up"}) {
    write(name, name);
    EXPECT_EQ(contents(other / "file"), name);
  }
  write("dangling", "made");
  EXPECT_EQ(contents(other / "new"), "made");
  EXPECT_EQ(other.names(), (std::vector<std::string>{"file", "new"}));
  fs::create_symlink("loop", directory / "loop");
  EXPECT_ERROR_HAS(AtomicFile(directory / "loop"), "loop: Too many levels of symbolic links");
}

TEST(AtomicFile, DevicesAndPipesAreWrittenToAndStay) {
  const TemporaryDirectory directory;
  ASSERT_EQ(mkfifo((directory / "pipe").c_str(), 0600), 0);
  const int reader = open((directory / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  fs::create_symlink("pipe", directory / "link");
  for (const char* name : {"pipe", "link"}) {
    AtomicFile file(directory / name);
    file.write("through ");
    file.write(name);
    EXPECT_ERROR_HAS(file.overwrite(0, "x"), "is no file");
    file.commit();
    char text[64] = {};
    EXPECT_GT(read(reader, text, sizeof text), 0);
    EXPECT_EQ(text, std::string("through ") + name);
  }
  close(reader);
  EXPECT_EQ(fs::status(directory / "pipe").type(), fs::file_type::fifo);
  EXPECT_TRUE(fs::is_symlink(directory / "link"));
  EXPECT_EQ(directory.names(), (std::vector<std::string>{"link", "pipe"}));
  for (const char* device : {"/dev/null", "/dev/full"}) {
    const auto write = [&] {
      AtomicFile file(device);
      file.write("gone");
      file.commit();
    };
    EXPECT_EQ(error_of(write), device == std::string("/dev/null") ? "" : "[write] /dev/full: No space left on device");
    EXPECT_EQ(fs::status(device).type(), fs::file_type::character);
  }
}

// As /dev/stdout, where standard output is a file: what was said before stays.
TEST(AtomicFile, WhatIsOpenAlreadyIsAppendedTo) {
  const TemporaryDirectory directory;
  const int open_file = open((directory / "log").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_GE(open_file, 0);
  ASSERT_EQ(write(open_file, "said\n", 5), 5);
  fs::create_symlink("/proc/self/fd/" + std::to_string(open_file), directory / "stdout");
  AtomicFile file(directory / "stdout");
  file.write("state");
  file.commit();
  char text[64] = {};
  EXPECT_EQ(pread(open_file, text, sizeof text, 0), 10);
  EXPECT_STREQ(text, "said\nstate");
  close(open_file);
  EXPECT_EQ(directory.names(), (std::vector<std::string>{"log", "stdout"}));
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
  EXPECT_ERROR_HAS(FileReader(directory / "a"), "[open] " + (directory / "a").string());
  ASSERT_TRUE(!root || seteuid(0) == 0);
  fs::permissions(directory.path(), fs::perms::owner_all);
}

TEST(AtomicFile, ANewFileHasThePermissionsOfAnyOther) {
  const TemporaryDirectory directory;
  const mode_t before = umask(0027);
  AtomicFile file(directory / "a");
  file.commit();
  umask(before);
  EXPECT_EQ(fs::status(directory / "a").permissions(), fs::perms(0640));
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
