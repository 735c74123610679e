#include "simd/bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/arena.h"
#include "base/parallel.h"
#include "simd/kernels.h"

namespace deltanet::simd {
namespace {

constexpr int64_t kFloats = int64_t{1} << 28;  // 1 GiB
constexpr int64_t kPieces = 512;               // handed out one by one: a thread that is held up does not hold up all
constexpr int64_t kPiece = kFloats / kPieces;

}  // namespace

double read_bandwidth(int threads, double seconds) {
  Arena arena;
  float* data = arena.take(kFloats);
  float sums[kPieces];
  parallel_for(threads, kPieces, [&](int64_t i) { std::fill_n(data + i * kPiece, kPiece, 1.0f); });

  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  double elapsed = 0.0, bytes = 0.0;
  bool right = true;
  do {
    parallel_for(threads, kPieces, [&](int64_t i) { sums[i] = kernels().matvec.sum(kPiece, data + i * kPiece); });
    bytes += static_cast<double>(kFloats) * sizeof(float);
    elapsed = std::chrono::duration<double>(Clock::now() - start).count();
    right = right && std::all_of(sums, sums + kPieces, [](float sum) { return sum > 0.0f; });
  } while (elapsed < seconds);
  // Using the sums keeps the loads alive.
  return right ? bytes / elapsed * 1e-9 : 0.0;
}

}  // namespace deltanet::simd
