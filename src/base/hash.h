#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace deltanet {

inline constexpr uint64_t kEmptyHash = 0xcbf29ce484222325u;

// FNV-1a. Tells apart what differs by accident, not what someone made to look alike. `hash` continues an earlier one.
inline uint64_t hash_bytes(const void* data, std::size_t bytes, uint64_t hash = kEmptyHash) {
  for (std::size_t i = 0; i < bytes; ++i) {
    hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3u;
  }
  return hash;
}

// Of many bytes, in parts of any size: at the speed of memory, where the above takes a few cycles for each byte. Two
// contents of one size that differ within eight aligned bytes only, as by a flipped bit, never have the same value;
// others do by a chance of 2^-64. Nor does this withstand somebody who wants two to look alike.
class ContentHash {
 public:
  void add(const void* data, std::size_t bytes);
  void add(std::string_view text) { add(text.data(), text.size()); }

  uint64_t value() const;

 private:
  // Words go to the lanes in turn, so that four products are under way at once.
  static constexpr std::size_t kLanes = 4, kBlock = kLanes * sizeof(uint64_t);
  using Lanes = std::array<uint64_t, kLanes>;
  static void mix_block(Lanes& lanes, const unsigned char* block);

  Lanes lanes_ = {0x9e3779b97f4a7c15u, 0xbf58476d1ce4e5b9u, 0x94d049bb133111ebu, 0xd6e8feb86659fd93u};
  std::array<unsigned char, kBlock> held_ = {};  // the beginning of the next block
  std::size_t held_bytes_ = 0;
  uint64_t bytes_ = 0;
};

std::string hex_text(uint64_t value);  // 16 digits

}  // namespace deltanet
