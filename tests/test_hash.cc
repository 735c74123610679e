// The checksum of contents: of the bytes, not of how they are handed over, and no flipped bit goes unseen.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "base/hash.h"
#include "base/rng.h"

namespace deltanet {
namespace {

uint64_t hash_of(const std::string& bytes) {
  ContentHash hash;
  hash.add(bytes);
  return hash.value();
}

std::string random_bytes(std::size_t size) {
  Rng rng(size);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(256 * rng.uniform());
  return bytes;
}

TEST(ContentHash, DoesNotDependOnTheParts) {
  Rng rng(1);
  for (const std::size_t size : {0, 1, 7, 31, 32, 33, 64, 1000}) {
    const std::string bytes = random_bytes(size);
    for (int way = 0; way < 20; ++way) {
      ContentHash hash;
      for (std::size_t begin = 0; begin < size;) {
        const std::size_t part = std::min(size - begin, static_cast<std::size_t>(70 * rng.uniform()));
        hash.add(bytes.data() + begin, part);
        EXPECT_EQ(hash.value(), hash_of(bytes.substr(0, begin + part)));  // asking changes nothing
        begin += part;
      }
      EXPECT_EQ(hash.value(), hash_of(bytes));
    }
  }
}

TEST(ContentHash, SeesEveryBitAndEveryByte) {
  for (const std::size_t size : {1, 8, 31, 32, 100, 256}) {
    std::string bytes = random_bytes(size);
    std::set<uint64_t> values = {hash_of(bytes), hash_of(bytes + '\0'), hash_of(bytes.substr(0, size - 1))};
    for (std::size_t i = 0; i < size; ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        bytes[i] = static_cast<char>(bytes[i] ^ 1 << bit);
        values.insert(hash_of(bytes));
        bytes[i] = static_cast<char>(bytes[i] ^ 1 << bit);
      }
    }
    EXPECT_EQ(values.size(), 8 * size + 3);
  }
}

TEST(ContentHash, SeesWhatIsExchanged) {
  std::string bytes = random_bytes(96);
  const uint64_t before = hash_of(bytes);
  for (const auto& [a, b] : {std::pair{0, 8}, {0, 32}, {24, 56}, {32, 64}}) {
    std::string changed = bytes;
    std::swap_ranges(changed.begin() + a, changed.begin() + a + 8, changed.begin() + b);
    EXPECT_NE(hash_of(changed), before) << a << " " << b;
  }
}

TEST(ContentHash, IsWrittenWithSixteenDigits) {
  EXPECT_EQ(hex_text(0), "0000000000000000");
  EXPECT_EQ(hex_text(0x0123456789abcdefu), "0123456789abcdef");
}

}  // namespace
}  // namespace deltanet
