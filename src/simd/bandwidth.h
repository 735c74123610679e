#pragma once

#include <cstdint>

#include "base/arena.h"

namespace deltanet::simd {

// An array much larger than the caches, to be read: the bandwidth of memory is bytes() over the seconds of read().
class LargeArray {
 public:
  explicit LargeArray(int threads);  // 0: default_threads()

  // One pass on all threads. Returns whether the values were as written, which keeps the loads alive.
  [[nodiscard]] bool read() const;

  static int64_t bytes();

 private:
  Arena arena_;
  float* data_;
  int threads_;
};

}  // namespace deltanet::simd
