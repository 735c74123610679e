#include "data/corpus/byte_source.h"

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>
#include <vector>

#include "deltanet/error.h"

namespace deltanet::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPieceBytes = 1 << 18;

[[noreturn]] void refuse(const fs::path& path, const std::string& what) {
  throw Error("[read] " + path.string() + ": " + what);
}

class PlainFile final : public ByteSource {
 public:
  explicit PlainFile(fs::path path)
      : path_(std::move(path)), file_(std::fopen(path_.c_str(), "rbe")), buffer_(kPieceBytes) {
    if (!file_) refuse(path_, std::generic_category().message(errno));
    std::setvbuf(file_.get(), nullptr, _IONBF, 0);  // the pieces are large enough
  }

  std::string_view next() override {
    const std::size_t got = std::fread(buffer_.data(), 1, buffer_.size(), file_.get());
    if (got == 0 && std::ferror(file_.get())) refuse(path_, std::generic_category().message(errno));
    read_ += static_cast<int64_t>(got);
    return {buffer_.data(), got};
  }
  int64_t bytes_on_disk() const override { return read_; }
  const fs::path& path() const { return path_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  fs::path path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::vector<char> buffer_;
  int64_t read_ = 0;
};

// gzip, also several members one after the other, as parallel packers write them. Zeros behind a member, with which
// tapes and some copies fill their blocks, are nothing.
class GzipFile final : public ByteSource {
 public:
  explicit GzipFile(fs::path path) : packed_(std::move(path)), buffer_(kPieceBytes) {
    constexpr int kGzipOnly = 16;
    if (inflateInit2(&stream_, kGzipOnly + MAX_WBITS) != Z_OK) refuse(packed_.path(), "zlib cannot be started");
  }
  ~GzipFile() override { inflateEnd(&stream_); }
  GzipFile(const GzipFile&) = delete;
  GzipFile& operator=(const GzipFile&) = delete;

  std::string_view next() override {
    stream_.next_out = reinterpret_cast<Bytef*>(buffer_.data());
    stream_.avail_out = static_cast<uInt>(buffer_.size());
    while (stream_.avail_out == buffer_.size()) {
      if (stream_.avail_in == 0 && !refill()) break;
      if (!inside_) {
        for (; stream_.avail_in > 0 && *stream_.next_in == 0; ++stream_.next_in) --stream_.avail_in;
        if (stream_.avail_in == 0) continue;
        inflateReset(&stream_);
        inside_ = true;
      }
      const int result = inflate(&stream_, Z_NO_FLUSH);
      if (result == Z_STREAM_END) {
        inside_ = false;
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        refuse(packed_.path(), std::string("given damaged gzip data (") + (stream_.msg ? stream_.msg : "no reason") +
                                   ") near byte " + std::to_string(place()) + "; expected gzip");
      }
    }
    return {buffer_.data(), buffer_.size() - stream_.avail_out};
  }
  int64_t bytes_on_disk() const override { return packed_.bytes_on_disk(); }

 private:
  int64_t place() const { return packed_.bytes_on_disk() - stream_.avail_in; }

  // More packed bytes; false at the end of the file, which must be the end of a member.
  bool refill() {
    const std::string_view input = packed_.next();
    if (input.empty()) {
      if (inside_) {
        refuse(packed_.path(), "given gzip data that end too early, after " + std::to_string(place()) +
                                   " bytes; expected a whole file");
      }
      return false;
    }
    // zlib only reads here, but does not say so in its type.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input.data()));
    stream_.avail_in = static_cast<uInt>(input.size());
    return true;
  }

  PlainFile packed_;
  z_stream stream_{};
  std::vector<char> buffer_;
  bool inside_ = true;  // a member; an empty file has none and is refused
};

// Zstandard, also several frames one after the other.
class ZstdFile final : public ByteSource {
 public:
  explicit ZstdFile(fs::path path) : packed_(std::move(path)), stream_(ZSTD_createDStream()), buffer_(kPieceBytes) {
    if (!stream_) refuse(packed_.path(), "Zstandard cannot be started");
    // By itself it would not read what was packed with `zstd --long=28` or more.
    const ZSTD_bounds window = ZSTD_dParam_getBounds(ZSTD_d_windowLogMax);
    ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax, window.upperBound);
  }

  std::string_view next() override {
    ZSTD_outBuffer output{buffer_.data(), buffer_.size(), 0};
    while (output.pos == 0) {
      // Without input, what it still holds back is asked for; at the end of the file there must be nothing.
      if (input_.pos == input_.size && !holds_output_ && !refill()) break;
      const std::size_t result = ZSTD_decompressStream(stream_.get(), &output, &input_);
      if (ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation) {
        refuse(packed_.path(), "given Zstandard data whose window does not fit in memory; expected a smaller one");
      }
      if (ZSTD_isError(result)) {
        refuse(packed_.path(), std::string("given damaged Zstandard data (") + ZSTD_getErrorName(result) +
                                   ") near byte " + std::to_string(place()) + "; expected Zstandard");
      }
      inside_ = result != 0;
      holds_output_ = inside_ && output.pos == output.size;
    }
    return {buffer_.data(), output.pos};
  }
  int64_t bytes_on_disk() const override { return packed_.bytes_on_disk(); }

 private:
  struct Free {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };
  int64_t place() const { return packed_.bytes_on_disk() - static_cast<int64_t>(input_.size - input_.pos); }

  bool refill() {
    const std::string_view bytes = packed_.next();
    if (bytes.empty()) {
      if (inside_) {
        refuse(packed_.path(), "given Zstandard data that end too early, after " + std::to_string(place()) +
                                   " bytes; expected a whole file");
      }
      return false;
    }
    input_ = {bytes.data(), bytes.size(), 0};
    return true;
  }

  PlainFile packed_;
  std::unique_ptr<ZSTD_DStream, Free> stream_;
  std::vector<char> buffer_;
  ZSTD_inBuffer input_{nullptr, 0, 0};
  bool inside_ = true;         // a frame; an empty file has none and is refused
  bool holds_output_ = false;  // the last call filled the buffer
};

}  // namespace

bool is_packed(const fs::path& path) { return path.extension() == ".gz" || path.extension() == ".zst"; }

std::unique_ptr<ByteSource> open_bytes(const fs::path& path) {
  if (path.extension() == ".gz") return std::make_unique<GzipFile>(path);
  if (path.extension() == ".zst") return std::make_unique<ZstdFile>(path);
  return std::make_unique<PlainFile>(path);
}

}  // namespace deltanet::data
