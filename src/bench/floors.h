#pragma once

#include <cstdint>
#include <vector>

#include "bench/floor.h"

// What this library promises about speed and memory, measured in one run. Everything is fp32 with B=1, H=8, K=V=128,
// T=kFloorLength, the L2 norm inside and one thread, unless a floor says otherwise.

namespace deltanet::bench {

inline constexpr int64_t kFloorLength = 4096;

struct FloorOptions {
  bool quick = false;          // fewer repeats
  Clock clock = Clock::kWall;  // of what runs on one thread
};

std::vector<Floor> measure_floors(const FloorOptions& options, const Report& report);

}  // namespace deltanet::bench
