#include "bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/parallel.h"
#include "deltanet/runtime.h"
#include "simd/kernels.h"

namespace deltanet::bench {
namespace {

double now(Clock clock) {
  if (clock == Clock::kWall) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

double seconds_of(const std::function<void()>& run, Clock clock) {
  const double start = now(clock);
  run();
  return now(clock) - start;
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - static_cast<double>(low)) * (values[high] - values[low]);
}

std::vector<double> ratios(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> result;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) result.push_back(a[i] / b[i]);
  return result;
}

std::vector<double> sums(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> result;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) result.push_back(a[i] + b[i]);
  return result;
}

std::vector<std::vector<double>> interleave(const std::vector<std::function<void()>>& candidates, int rounds,
                                            const std::function<void(int round)>& on_round, Clock clock) {
  std::vector<std::vector<double>> seconds(candidates.size());
  for (int round = -1; round < rounds; ++round) {
    if (on_round && round >= 0) on_round(round);
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const std::size_t which = round % 2 == 0 ? i : candidates.size() - 1 - i;
      const double elapsed = seconds_of(candidates[which], clock);
      if (round >= 0) seconds[which].push_back(elapsed);
    }
  }
  return seconds;
}

double measure_peak(int threads, double seconds) {
  std::vector<double> gflops(static_cast<std::size_t>(threads), 0.0);
  parallel_for(threads, threads,
               [&](int64_t i) { gflops[static_cast<std::size_t>(i)] = simd::kernels().fma_peak(seconds); });
  double total = 0;
  for (double one : gflops) total += one;
  return total;
}

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const auto colon = line.find(':');
    if (colon != std::string::npos && colon + 2 <= line.size()) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

nlohmann::json machine_json(int threads) {
  return {{"cpu", cpu_model()},           {"cpus", std::thread::hardware_concurrency()},
          {"simd_target", simd_target()}, {"simd_targets", simd_targets()},
          {"threads", threads},           {"deltanet", version()}};
}

}  // namespace deltanet::bench
