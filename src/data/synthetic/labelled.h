#pragma once

#include <cstdint>
#include <vector>

#include "base/rng.h"

// What tasks that are drawn at random, token by token, share.

namespace deltanet {

inline constexpr int32_t kNoTarget = -100;  // nothing is asked here

// targets[i] is what should be said after ids[i], or kNoTarget.
struct LabelledExample {
  std::vector<int32_t> ids, targets;
};

inline int64_t uniform_below(int64_t bound, Rng& rng) {
  return static_cast<int64_t>(rng.uniform() * static_cast<double>(bound));
}

}  // namespace deltanet
