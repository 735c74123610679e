// Checksums of tensors in a checkpoint: every flipped bit of a value is found, in shards and of every type, and files
// without them are read as before.

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <vector>

#include "base/file.h"
#include "model/checkpoint/checkpoint.h"
#include "temporary_directory.h"

namespace deltanet::test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kOneFile = 1000, kTwoShards = 24;  // max_shard_bytes

class Checksums : public testing::Test {
 protected:
  // Of 3, 2 and 0 floats, and 3 integers from a source.
  std::vector<StoredTensor> tensors() const {
    const auto* data = reinterpret_cast<const std::byte*>(floats_.data());
    return {{.name = "a", .shape = {3}, .data = data, .bytes = 12},
            {.name = "b", .shape = {2}, .data = data + 12, .bytes = 8},
            {.name = "none", .shape = {0, 4}, .data = data, .bytes = 0},
            {.name = "counts",
             .dtype = DType::kI64,
             .shape = {3},
             .bytes = 24,
             .source = [this](int64_t begin, int64_t bytes, void* to) {
               std::memcpy(to, reinterpret_cast<const std::byte*>(integers_.data()) + begin,
                           static_cast<std::size_t>(bytes));
             }}};
  }
  void save(int64_t max_shard_bytes, DType dtype, bool checksums) const {
    write_checkpoint(directory_.path(), tensors(),
                     {.dtype = dtype, .max_shard_bytes = max_shard_bytes, .checksums = checksums});
  }
  CheckpointReader::Check check() const { return CheckpointReader(directory_.path()).check_values(1); }

  TemporaryDirectory directory_;
  std::vector<float> floats_ = {1.0f, -2.5f, 3e-3f, 7.0f, 0.0f};
  std::vector<int64_t> integers_ = {1, 2, 3};
};

TEST_F(Checksums, FindEveryFlippedBit) {
  for (const int64_t size : {kOneFile, kTwoShards}) {
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
      save(size, dtype, true);
      EXPECT_EQ(check().tensors, 4);
      EXPECT_EQ(check().without, 0);
      EXPECT_TRUE(check().damaged.empty());
      int64_t files = 0;
      for (const std::string& name : directory_.names()) {
        if (!name.ends_with(".safetensors")) continue;
        ++files;
        const fs::path path = directory_ / name;
        const std::string whole = read_file(path, 1 << 20);
        uint64_t header = 0;
        std::memcpy(&header, whole.data(), sizeof header);
        for (std::size_t at = sizeof header + header; at < whole.size(); ++at) {
          for (int bit = 0; bit < 8; ++bit) {
            std::string bytes = whole;
            bytes[at] = static_cast<char>(bytes[at] ^ 1 << bit);
            std::ofstream(path, std::ios::binary) << bytes;
            ASSERT_EQ(check().damaged.size(), 1u) << name << ", byte " << at << ", bit " << bit;
          }
        }
        std::ofstream(path, std::ios::binary) << whole;
      }
      EXPECT_EQ(files, size == kOneFile ? 1 : 2);
    }
  }
}

TEST_F(Checksums, NameFileAndTensor) {
  save(kOneFile, DType::kF32, true);
  const fs::path path = directory_ / "model.safetensors";
  std::string bytes = read_file(path, 1 << 20);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);  // the last tensor, in the order of the library
  std::ofstream(path, std::ios::binary) << bytes;
  EXPECT_EQ(check().damaged, std::vector<std::string>{path.string() + ": tensor \"b\""});
}

TEST_F(Checksums, AreNotNeeded) {
  save(kOneFile, DType::kF32, false);
  EXPECT_EQ(check().without, 4);
  EXPECT_TRUE(check().damaged.empty());
}

TEST_F(Checksums, ChangeNothingButTheMetadata) {
  save(kOneFile, DType::kF32, false);
  const SafetensorsFile without(directory_ / "model.safetensors");
  save(kOneFile, DType::kF32, true);
  const SafetensorsFile with(directory_ / "model.safetensors");
  ASSERT_EQ(with.tensors().size(), without.tensors().size());
  for (std::size_t i = 0; i < with.tensors().size(); ++i) {
    const StoredTensor &a = with.tensors()[i], &b = without.tensors()[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.shape, b.shape);
    std::string values(static_cast<std::size_t>(a.bytes), '\0'), expected(static_cast<std::size_t>(b.bytes), '\0');
    a.read(0, a.bytes, values.data());
    b.read(0, b.bytes, expected.data());
    EXPECT_EQ(values, expected);
  }
  EXPECT_EQ(with.metadata().at("format"), "pt");
  EXPECT_EQ(with.metadata().size(), 5u);
}

}  // namespace
}  // namespace deltanet::test
