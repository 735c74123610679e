#include "base/hash.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace deltanet {
namespace {

// For a given word one-to-one in `hash`, and for a given hash one-to-one in `word`: one word that differs makes a
// difference that nothing later takes away. Both are multiplied, so that no few bits of the next word undo it.
uint64_t mix(uint64_t hash, uint64_t word) {
  return std::rotl(hash ^ word * 0x9fb21c651e98df25u, 31) * 0xa0761d6478bd642fu;
}

// Every bit of the result depends on every bit of `hash`.
uint64_t spread(uint64_t hash) {
  hash = (hash ^ hash >> 32) * 0xd6e8feb86659fd93u;
  hash = (hash ^ hash >> 32) * 0xd6e8feb86659fd93u;
  return hash ^ hash >> 32;
}

}  // namespace

void ContentHash::mix_block(Lanes& lanes, const unsigned char* block) {
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    uint64_t word;
    std::memcpy(&word, block + lane * sizeof word, sizeof word);
    lanes[lane] = mix(lanes[lane], word);
  }
}

void ContentHash::add(const void* data, std::size_t bytes) {
  const auto* next = static_cast<const unsigned char*>(data);
  bytes_ += bytes;
  if (held_bytes_ > 0) {
    const std::size_t part = std::min(bytes, kBlock - held_bytes_);
    std::copy_n(next, part, held_.begin() + static_cast<std::ptrdiff_t>(held_bytes_));
    next += part;
    bytes -= part;
    held_bytes_ += part;
    if (held_bytes_ < kBlock) return;
    mix_block(lanes_, held_.data());
  }
  Lanes lanes = lanes_;  // in registers
  for (; bytes >= kBlock; next += kBlock, bytes -= kBlock) mix_block(lanes, next);
  lanes_ = lanes;
  std::copy_n(next, bytes, held_.begin());
  held_bytes_ = bytes;
}

uint64_t ContentHash::value() const {
  Lanes lanes = lanes_;
  if (held_bytes_ > 0) {
    std::array<unsigned char, kBlock> last = {};  // the size tells zeros that were given from these
    std::copy_n(held_.begin(), held_bytes_, last.begin());
    mix_block(lanes, last.data());
  }
  uint64_t hash = bytes_;
  for (const uint64_t lane : lanes) hash = spread(mix(hash, lane));
  return hash;
}

std::string hex_text(uint64_t value) {
  std::string text(16, '0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = "0123456789abcdef"[value >> (60 - 4 * i) & 15];
  return text;
}

}  // namespace deltanet
