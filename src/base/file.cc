#include "base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
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

}  // namespace

MappedFile::MappedFile(fs::path path, Access access) : path_(std::move(path)) {
  const Descriptor descriptor(open_to_read(path_));
  if (descriptor < 0) fail("open", path_, errno);
  const size_t size = checked_size("open", descriptor, path_);
  if (size == 0) return;  // cannot be mapped
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (data == MAP_FAILED) fail("map", path_, errno);
  madvise(data, size, access == Access::kSequential ? MADV_SEQUENTIAL : MADV_RANDOM);  // only advice: may be refused
  bytes_ = {static_cast<const std::byte*>(data), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
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
  static std::atomic<uint64_t> counter{0};
  std::string prefix = ".";
  prefix.append(target_.filename().string()).append(".").append(std::to_string(getpid())).append("-");
  struct stat status {};
  do {
    if (descriptor_ >= 0) close(descriptor_);
    temporary_ = directory_of(target_) / (prefix + std::to_string(counter++)).append(kTemporarySuffix);
    descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0) {
      if (errno == EEXIST) continue;  // left behind by a process that had the same number
      fail("write", target_, errno);
    }
    flock(descriptor_, LOCK_EX | LOCK_NB);
    // remove_abandoned() of another process may have come between the creation and the lock.
  } while (descriptor_ < 0 || (fstat(descriptor_, &status) == 0 && status.st_nlink == 0));
  if (stat(target_.c_str(), &status) == 0 && S_ISREG(status.st_mode)) {
    // A file that is replaced keeps its permissions where the system lets it.
    [[maybe_unused]] const int refused = fchmod(descriptor_, status.st_mode & 07777);
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  unlink(temporary_.c_str());  // before the lock goes
  close(descriptor_);
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : target_(std::move(other.target_)),
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

void AtomicFile::prepare() {
  if (prepared_) return;
  flush();
  if (fsync(descriptor_) != 0) fail("write", target_, errno);
  prepared_ = true;
}

void AtomicFile::commit() {
  if (descriptor_ < 0) throw Error("[write] " + target_.string() + ": the file is already complete");
  prepare();
  if (rename(temporary_.c_str(), target_.c_str()) != 0) fail("write", target_, errno);
  close(std::exchange(descriptor_, -1));  // everything is on disk: nothing is left that could fail
  sync_directory(directory_of(target_));
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
