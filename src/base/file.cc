#include "base/file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "deltanet/error.h"

namespace deltanet {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBufferBytes = 1 << 20;
constexpr std::string_view kTemporarySuffix = ".deltanet-tmp";

[[noreturn]] void fail(const char* operation, const fs::path& path, int reason) {
  throw Error("[" + std::string(operation) + "] " + path.string() + ": " + std::generic_category().message(reason));
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  operator int() const { return number_; }

 private:
  int number_;
};

// Not blocking: a pipe without a writer is an error below, not a program that hangs.
int open_to_read(const fs::path& path) { return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }

// The size of a regular file.
size_t checked_size(const char* operation, int descriptor, const fs::path& path) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) fail(operation, path, errno);
  if (S_ISDIR(status.st_mode)) fail(operation, path, EISDIR);
  if (!S_ISREG(status.st_mode)) throw Error(std::string("[") + operation + "] " + path.string() + ": not a file");
  return static_cast<size_t>(status.st_size);
}

fs::path directory_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

// Does a name stand for something that is open already, such as /dev/stdout, which leads to /proc/self/fd/1? Such links
// look like those to files, but what is open would not notice that a file got its name.
bool is_open_already(const fs::path& link) {
  struct statfs system {};
  return statfs(directory_of(link).c_str(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC;
}

struct Destination {
  fs::path path;
  bool is_stream;  // to be written to as it is
};

// Where what is written to a path goes in the end.
Destination follow_links(const fs::path& target) {
  constexpr int kMostLinks = 40;  // as the system's own limit
  struct stat status {};
  if (stat(target.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) return {target, true};
  fs::path path = target;
  for (int links = 0; lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode); ++links) {
    if (links == kMostLinks) fail("write", target, ELOOP);
    if (is_open_already(path)) return {target, true};
    std::error_code error;
    const fs::path next = fs::read_symlink(path, error);
    if (error) fail("write", target, error.value());
    path = directory_of(path) / next;  // `next` alone if it is absolute
  }
  return {path, false};
}

}  // namespace

FileReader::FileReader(fs::path path, Access access) : path_(std::move(path)), descriptor_(open_to_read(path_)) {
  if (descriptor_ < 0) fail("open", path_, errno);
  try {
    size_ = static_cast<int64_t>(checked_size("open", descriptor_, path_));
  } catch (...) {
    close(descriptor_);
    throw;
  }
  // Only advice: may be refused.
  posix_fadvise(descriptor_, 0, 0, access == Access::kSequential ? POSIX_FADV_SEQUENTIAL : POSIX_FADV_RANDOM);
}

FileReader::~FileReader() {
  if (descriptor_ >= 0) close(descriptor_);
}

FileReader::FileReader(FileReader&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

FileReader& FileReader::operator=(FileReader&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

void FileReader::read(int64_t begin, int64_t bytes, void* to) const {
  char* out = static_cast<char*>(to);
  for (int64_t done = 0; done < bytes;) {
    const ssize_t got = pread(descriptor_, out + done, static_cast<size_t>(bytes - done), begin + done);
    if (got < 0 && errno != EINTR) fail("read", path_, errno);
    if (got == 0) {
      throw Error("[read] " + path_.string() + ": ends at byte " + std::to_string(begin + done) + "; expected " +
                  std::to_string(std::max(size_, begin + bytes)) +
                  " bytes: it was made shorter while it was read; replace files instead of writing over them");
    }
    if (got > 0) done += got;
  }
}

std::string read_file(const fs::path& path, int64_t max_bytes) {
  const Descriptor descriptor(open_to_read(path));
  if (descriptor < 0) fail("read", path, errno);
  const size_t size = checked_size("read", descriptor, path);
  if (size > static_cast<size_t>(max_bytes)) {
    throw Error("[read] " + path.string() + ": given " + std::to_string(size) + " bytes; expected at most " +
                std::to_string(max_bytes));
  }
  std::string text(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t got = read(descriptor, text.data() + done, size - done);
    if (got < 0 && errno != EINTR) fail("read", path, errno);
    if (got == 0) break;  // the file has become shorter
    if (got > 0) done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

AtomicFile::AtomicFile(fs::path target) : target_(std::move(target)) {
  buffer_.reserve(kBufferBytes);
  const Destination destination = follow_links(target_);
  replaced_ = destination.path;
  if (destination.is_stream) {
    descriptor_ = open(target_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY);
    if (descriptor_ < 0) fail("write", target_, errno);
  } else {
    make_temporary();
  }
}

void AtomicFile::make_temporary() {
  static std::atomic<uint64_t> counter{0};
  std::string prefix = ".";
  prefix.append(replaced_.filename().string()).append(".").append(std::to_string(getpid())).append("-");
  struct stat status {};
  do {
    if (descriptor_ >= 0) close(descriptor_);
    temporary_ = directory_of(replaced_) / (prefix + std::to_string(counter++)).append(kTemporarySuffix);
    descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0) {
      if (errno == EEXIST) continue;  // left behind by a process that had the same number
      fail("write", target_, errno);
    }
    flock(descriptor_, LOCK_EX | LOCK_NB);
    // remove_abandoned() of another process may have come between the creation and the lock.
  } while (descriptor_ < 0 || (fstat(descriptor_, &status) == 0 && status.st_nlink == 0));
  if (stat(replaced_.c_str(), &status) == 0 && S_ISREG(status.st_mode)) {
    // A file that is replaced keeps its permissions where the system lets it.
    [[maybe_unused]] const int refused = fchmod(descriptor_, status.st_mode & 07777);
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  if (!temporary_.empty()) unlink(temporary_.c_str());  // before the lock goes
  close(descriptor_);
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : target_(std::move(other.target_)),
      replaced_(std::move(other.replaced_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      buffer_(std::move(other.buffer_)),
      prepared_(other.prepared_) {}

void AtomicFile::write_all(const char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor_, data, bytes);
    if (written < 0) {
      if (errno == EINTR) continue;
      fail("write", target_, errno);
    }
    data += written;
    bytes -= static_cast<size_t>(written);
  }
}

void AtomicFile::flush() {
  write_all(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void AtomicFile::write(const void* data, size_t bytes) {
  if (descriptor_ < 0 || prepared_) throw Error("[write] " + target_.string() + ": the file is already complete");
  const char* begin = static_cast<const char*>(data);
  if (buffer_.size() + bytes > kBufferBytes) flush();
  if (bytes >= kBufferBytes) {
    write_all(begin, bytes);
  } else {
    buffer_.insert(buffer_.end(), begin, begin + bytes);
  }
}

void AtomicFile::overwrite(int64_t begin, std::string_view text) {
  if (descriptor_ < 0 || prepared_) throw Error("[write] " + target_.string() + ": the file is already complete");
  if (temporary_.empty()) throw Error("[write] " + target_.string() + ": is no file; expected one");
  flush();
  while (!text.empty()) {
    const ssize_t written = pwrite(descriptor_, text.data(), text.size(), begin);
    if (written < 0 && errno != EINTR) fail("write", target_, errno);
    if (written < 0) continue;
    text.remove_prefix(static_cast<size_t>(written));
    begin += written;
  }
}

void AtomicFile::prepare() {
  if (prepared_) return;
  flush();
  // Devices and pipes have nothing to put on disk.
  if (fsync(descriptor_) != 0 && !(temporary_.empty() && (errno == EINVAL || errno == ENOTSUP || errno == EROFS))) {
    fail("write", target_, errno);
  }
  prepared_ = true;
}

void AtomicFile::commit() {
  if (descriptor_ < 0) throw Error("[write] " + target_.string() + ": the file is already complete");
  prepare();
  if (!temporary_.empty() && rename(temporary_.c_str(), replaced_.c_str()) != 0) fail("write", target_, errno);
  close(std::exchange(descriptor_, -1));  // everything is on disk: nothing is left that could fail
  if (!temporary_.empty()) sync_directory(directory_of(replaced_));
}

void sync_file(const fs::path& file) {
  const Descriptor descriptor(open_to_read(file));
  if (descriptor < 0 || fsync(descriptor) != 0) fail("write", file, errno);
}

void sync_directory(const fs::path& directory) {
  const Descriptor descriptor(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor < 0) fail("write", directory, errno);
  // Some file systems cannot do this for directories; they order such changes themselves.
  if (fsync(descriptor) != 0 && errno != EINVAL && errno != ENOTSUP) fail("write", directory, errno);
}

DirectoryLock::DirectoryLock(const fs::path& directory)
    : descriptor_(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (descriptor_ < 0) fail("lock", directory, errno);
  taken_by_another_ = flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

DirectoryLock::~DirectoryLock() { close(descriptor_); }

void remove_abandoned(const fs::path& directory) {
  std::error_code ignored;  // housekeeping: what cannot be removed stays
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(".") || !name.ends_with(kTemporarySuffix)) continue;
    const Descriptor descriptor(open_to_read(entry.path()));
    if (descriptor >= 0 && flock(descriptor, LOCK_EX | LOCK_NB) == 0) unlink(entry.path().c_str());
  }
}

}  // namespace deltanet
