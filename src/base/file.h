#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Files as the library uses them: read in whole or in parts, and replaced as a whole. Every failure throws Error
// with the path and the reason the system gave.

namespace deltanet {

// A file open for reading at any place, from any number of threads at once. It is read, not mapped: where another
// process has made it shorter meanwhile, that is an Error instead of the end of this process. A file that is replaced
// by another stays readable as it was.
class FileReader {
 public:
  enum class Access { kSequential, kRandom };

  explicit FileReader(std::filesystem::path path, Access access = Access::kSequential);
  ~FileReader();
  FileReader(FileReader&& other) noexcept;
  FileReader& operator=(FileReader&& other) noexcept;

  int64_t size() const { return size_; }  // when it was opened
  const std::filesystem::path& path() const { return path_; }

  // Bytes [begin, begin + bytes); an Error if the file does not have them all.
  void read(int64_t begin, int64_t bytes, void* to) const;

 private:
  std::filesystem::path path_;
  int descriptor_;
  int64_t size_;
};

// The whole file; an Error if it is longer than max_bytes.
std::string read_file(const std::filesystem::path& path, int64_t max_bytes);

// Replaces a file as a whole: readers see the old contents or the new, never a part. Writes go to a temporary file
// beside the target; without commit() the temporary is removed and the target stays as it was. A symbolic link stays:
// the file that it names, also on another disk, is the one that is replaced. What is no file but a device or a pipe,
// such as /dev/stdout, is written to as the bytes come.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path target);
  ~AtomicFile();
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;

  const std::filesystem::path& target() const { return target_; }
  const std::filesystem::path& replaced() const { return replaced_; }  // the target, or what it links to

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  // Puts bytes in the place of such that were written before; a device or a pipe has no such place.
  void overwrite(int64_t begin, std::string_view text);

  // Puts everything on disk under the temporary name. After this only commit() remains, which needs no space.
  void prepare();
  // prepare(), rename to the target, and put the renaming on disk.
  void commit();

 private:
  void flush();
  void write_all(const char* data, size_t bytes);
  void make_temporary();

  std::filesystem::path target_, replaced_;
  std::filesystem::path temporary_;  // empty: the target is no file and is written to directly
  int descriptor_ = -1;              // also holds the lock that tells remove_abandoned() that the temporary is in use
  std::vector<char> buffer_;
  bool prepared_ = false;
};

// Puts what was appended to a file, or the creations, renamings and removals in a directory, on disk.
void sync_file(const std::filesystem::path& file);
void sync_directory(const std::filesystem::path& directory);

// Keeps others that ask for the same lock out of a directory, until it is destroyed or the process ends, however that
// happens. Leaves no file behind. Where the file system has no such locks there is none.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::filesystem::path& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  bool taken_by_another() const { return taken_by_another_; }

 private:
  int descriptor_;
  bool taken_by_another_;
};

// Removes the temporaries of AtomicFiles in a directory whose process died before it could.
void remove_abandoned(const std::filesystem::path& directory);

}  // namespace deltanet
