#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "temporary_directory.h"

// The calls that change files and directories, in place of the C library's, in the one source of a test program that
// includes this. Two questions are asked of them:
//   - What does a process leave that dies at any of these calls? See outcome_of_crash().
//   - Would the same be true of a machine that loses its power? It may lose everything that nobody has put on disk, in
//     any order. See PowerLoss.

namespace deltanet::test {

class FileCalls {
 public:
  static FileCalls& instance() {
    static FileCalls calls;
    return calls;
  }

  int until_crash = -1;  // calls from here on; negative: no crash
  bool watches = false;

  std::vector<std::string> complaints;

  void count() {
    if (until_crash >= 0 && until_crash-- == 0) _exit(kCrashed);
  }
  static constexpr int kCrashed = 42;

  // ---- what is not on disk yet

  void written(int descriptor) {
    if (watches) unwritten_.insert(id_of(descriptor));
  }
  void synced(int descriptor) {
    if (!watches) return;
    unwritten_.erase(id_of(descriptor));
    changed_.erase(id_of(descriptor));
  }
  void renamed(const std::filesystem::path& from, const std::filesystem::path& to) {
    if (!watches) return;
    struct stat status {};
    if (stat(to.c_str(), &status) == 0 && unwritten_.contains({status.st_dev, status.st_ino})) {
      complain(to.string(), "got its name before its contents were on disk");
    }
    if (S_ISDIR(status.st_mode)) check_contents(to);
    if (from.parent_path() != to.parent_path()) change(from);
    change(to);
  }
  void removed(const char* path) {
    if (watches) change(path);
  }

  // Names of directories with changes that are not on disk.
  std::vector<std::string> changed() const {
    std::vector<std::string> names;
    for (const auto& [id, path] : changed_) names.push_back(path.parent_path().string());
    return names;
  }
  // Files that decide what the others of their directory mean: each change of one is on disk before any other change
  // of that directory, and after all earlier ones.
  std::set<std::string> entries = {"meta.json", "model.safetensors", "model.safetensors.index.json", "last", "best"};

  void start_watching() {
    unwritten_.clear();
    changed_.clear();
    complaints.clear();
    watches = true;
  }

 private:
  using Id = std::pair<dev_t, ino_t>;

  static Id id_of(int descriptor) {
    struct stat status {};
    fstat(descriptor, &status);
    return {status.st_dev, status.st_ino};
  }
  void complain(const std::string& path, const std::string& what) { complaints.push_back(path + " " + what); }
  void change(const std::filesystem::path& path) {
    struct stat status {};
    if (stat(path.parent_path().c_str(), &status) != 0) return;
    const bool is_entry = entries.contains(path.filename().string());
    const auto [before, first] = changed_.try_emplace({status.st_dev, status.st_ino}, path);
    if (!first && is_entry)
      complain(path.string(), "changes while a change of " + before->second.string() + " may be lost");
    if (!first && entries.contains(before->second.filename().string())) {
      complain(path.string(), "changes while the change of " + before->second.string() + " may be lost");
    }
    before->second = path;
  }
  // A directory that gets its name: everything in it is on disk.
  void check_contents(const std::filesystem::path& directory) {
    struct stat status {};
    if (stat(directory.c_str(), &status) == 0 && changed_.contains({status.st_dev, status.st_ino})) {
      complain(directory.string(), "got its name before those of its files were on disk");
    }
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      if (stat(entry.path().c_str(), &status) == 0 && unwritten_.contains({status.st_dev, status.st_ino})) {
        complain(entry.path().string(), "is in a directory that got its name before the contents");
      }
    }
  }

  std::set<Id> unwritten_;                       // files with contents that are not on disk
  std::map<Id, std::filesystem::path> changed_;  // directories with names that are not, and the last of them
};

// Watches the calls of its lifetime.
class PowerLoss {
 public:
  PowerLoss() { FileCalls::instance().start_watching(); }
  ~PowerLoss() { FileCalls::instance().watches = false; }
  PowerLoss(const PowerLoss&) = delete;
  PowerLoss& operator=(const PowerLoss&) = delete;

  // What would have been lost or half there, at any time until now.
  const std::vector<std::string>& complaints() const { return FileCalls::instance().complaints; }
  // Directories whose last changes would be lost now.
  std::vector<std::string> unfinished() const { return FileCalls::instance().changed(); }
};

enum class Ended { kCrashed, kFinished, kFailed };

// Calls `change` in a process of its own, which dies at call number `crash` if there are as many.
inline Ended outcome_of_crash(int crash, const std::function<void()>& change) {
  const pid_t child = fork();
  if (child == 0) {
    FileCalls::instance().until_crash = crash;
    _exit(error_of(change).empty() ? 0 : 1);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return Ended::kFailed;
  if (WEXITSTATUS(status) == FileCalls::kCrashed) return Ended::kCrashed;
  return WEXITSTATUS(status) == 0 ? Ended::kFinished : Ended::kFailed;
}

}  // namespace deltanet::test

extern "C" {
int rename(const char* from, const char* to) noexcept {
  deltanet::test::FileCalls& calls = deltanet::test::FileCalls::instance();
  calls.count();
  const auto result = static_cast<int>(syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to));
  if (result == 0) calls.renamed(from, to);
  return result;
}
int unlink(const char* path) noexcept {
  deltanet::test::FileCalls& calls = deltanet::test::FileCalls::instance();
  calls.count();
  const auto result = static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, path, 0));
  if (result == 0) calls.removed(path);
  return result;
}
int remove(const char* path) noexcept {
  deltanet::test::FileCalls& calls = deltanet::test::FileCalls::instance();
  calls.count();
  const bool is_directory = std::filesystem::is_directory(std::filesystem::symlink_status(path));
  const auto result = static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, path, is_directory ? AT_REMOVEDIR : 0));
  if (result == 0) calls.removed(path);
  return result;
}
// The system does not crash with the process: only time would be lost.
int fsync(int descriptor) {
  deltanet::test::FileCalls& calls = deltanet::test::FileCalls::instance();
  calls.count();
  calls.synced(descriptor);
  return 0;
}
ssize_t write(int descriptor, const void* data, size_t bytes) {
  const ssize_t result = syscall(SYS_write, descriptor, data, bytes);
  deltanet::test::FileCalls::instance().written(descriptor);
  return result;
}
ssize_t pwrite(int descriptor, const void* data, size_t bytes,
               off_t begin) noexcept(noexcept(pwrite(0, nullptr, 0, 0))) {
  const ssize_t result = syscall(SYS_pwrite64, descriptor, data, bytes, begin);
  deltanet::test::FileCalls::instance().written(descriptor);
  return result;
}
}
