#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace deltanet {

// Philox4x32-10 (Salmon et al. 2011): the n-th block of random numbers is a function of (seed, stream, n), so that
// streams are independent, any place of one can be reached at once, and results are the same on every machine.
class Rng {
 public:
  using Block = std::array<uint32_t, 4>;

  explicit Rng(uint64_t seed, uint64_t stream = 0)
      : key_{low(seed), high(seed)}, counter_{0, 0, low(stream), high(stream)} {}

  uint64_t next() {
    if (half_ == 2) {
      block_ = philox(counter_, key_);
      if (++counter_[0] == 0) ++counter_[1];
      half_ = 0;
    }
    const uint64_t low_word = block_[2 * half_], high_word = block_[2 * half_ + 1];
    ++half_;
    return high_word << 32 | low_word;
  }

  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // in [0, 1)

  // Standard normal, by Box and Muller: two numbers of the stream give two normal ones, the second of which is kept for
  // the next call.
  double normal() {
    if (has_normal_) {
      has_normal_ = false;
      return normal_;
    }
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform())), angle = 2.0 * std::numbers::pi * uniform();
    normal_ = radius * std::sin(angle);
    has_normal_ = true;
    return radius * std::cos(angle);
  }

  static Block philox(Block counter, std::array<uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
      const uint64_t a = uint64_t{0xD2511F53u} * counter[0], b = uint64_t{0xCD9E8D57u} * counter[2];
      counter = {high(b) ^ counter[1] ^ key[0], low(b), high(a) ^ counter[3] ^ key[1], low(a)};
      key[0] += 0x9E3779B9u;
      key[1] += 0xBB67AE85u;
    }
    return counter;
  }

 private:
  static constexpr uint32_t low(uint64_t x) { return static_cast<uint32_t>(x); }
  static constexpr uint32_t high(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

  std::array<uint32_t, 2> key_;
  Block counter_, block_{};
  unsigned half_ = 2;  // of the block, that comes next
  double normal_ = 0.0;
  bool has_normal_ = false;
};

}  // namespace deltanet
