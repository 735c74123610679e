#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

namespace deltanet::data {

// The bytes of a file from front to back, a piece at a time.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual std::string_view next() = 0;        // borrowed until the next call; empty at the end of the file
  virtual int64_t bytes_on_disk() const = 0;  // read so far, as they are stored: packed
};

// Opens a file; those that end in .gz or .zst are unpacked on the way. Reading throws Error with the path where the
// system fails, and where packed data are damaged or end too early.
std::unique_ptr<ByteSource> open_bytes(const std::filesystem::path& path);

// True for .gz and .zst.
bool is_packed(const std::filesystem::path& path);

}  // namespace deltanet::data
