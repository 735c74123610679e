#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Files as the library uses them: whole files mapped or read, and files replaced as a whole. Every failure throws Error
// with the path and the reason the system gave.

namespace deltanet {

// A file mapped for reading. Its pages are shared with the system's cache; another process that shortens the file
// meanwhile takes them away, so files are replaced (AtomicFile), never rewritten in place.
class MappedFile {
 public:
  enum class Access { kSequential, kRandom };

  explicit MappedFile(std::filesystem::path path, Access access = Access::kSequential);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;  // without data if the file is empty
};

// The whole file; an Error if it is longer than max_bytes.
std::string read_file(const std::filesystem::path& path, int64_t max_bytes);

// Replaces a file as a whole: readers see the old contents or the new, never a part. Writes go to a temporary file
// beside the target; without commit() the temporary is removed and the target stays as it was.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path target);
  ~AtomicFile();
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;

  const std::filesystem::path& target() const { return target_; }

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }

  // Puts everything on disk under the temporary name. After this only commit() remains, which needs no space.
  void prepare();
  // prepare(), rename to the target, and put the renaming on disk.
  void commit();

 private:
  void flush();
  void write_all(const char* data, size_t bytes);

  std::filesystem::path target_, temporary_;
  int descriptor_ = -1;  // also holds the lock that tells remove_abandoned() that the temporary is in use
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
