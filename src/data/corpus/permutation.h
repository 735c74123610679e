#pragma once

#include <bit>
#include <cassert>
#include <cstdint>

#include "base/rng.h"

namespace deltanet::data {

// A random order of 0 ... size-1 that needs no memory: a Feistel network over the next power of four, whose rounds mix
// with Philox, applied again to results outside the range until one is inside (cycle walking; fewer than four steps on
// average). Different streams of one seed give different orders.
class Permutation {
 public:
  Permutation(int64_t size, uint64_t seed, uint64_t stream) : size_(static_cast<uint64_t>(size)), stream_(stream) {
    assert(size > 0);
    half_bits_ = (std::bit_width(size_ - 1) + 1) / 2;
    // Other numbers than those that an Rng of this seed gives.
    key_ = {static_cast<uint32_t>(seed) ^ 0x5EED5EEDu, static_cast<uint32_t>(seed >> 32) ^ 0x0DDB1A5Eu};
  }

  int64_t operator()(int64_t index) const {
    auto value = static_cast<uint64_t>(index);
    if (size_ == 1) return index;
    do {
      value = once(value);
    } while (value >= size_);
    return static_cast<int64_t>(value);
  }

 private:
  static constexpr uint32_t kRounds = 8;

  uint64_t once(uint64_t value) const {
    const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
    uint64_t left = value >> half_bits_, right = value & mask;
    for (uint32_t round = 0; round < kRounds; ++round) {
      const Rng::Block mixed = Rng::philox(
          {static_cast<uint32_t>(right), round, static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
          key_);
      const uint64_t next = left ^ (mixed[0] & mask);
      left = right;
      right = next;
    }
    return left << half_bits_ | right;
  }

  uint64_t size_, stream_;
  int half_bits_;
  std::array<uint32_t, 2> key_;
};

}  // namespace deltanet::data
