#include "cli/bench_measure.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.h"
#include "base/parallel.h"
#include "cli/terminal.h"
#include "deltanet/error.h"
#include "deltanet/runtime.h"
#include "simd/kernels.h"

namespace deltanet::cli {

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

void Progress::show(std::string_view text) {
  static const bool terminal = isatty(STDERR_FILENO) != 0;
  if (!terminal) return;
  say(stderr, fmt::format("\r\x1b[K{}", text));
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  say(stderr, "\r\x1b[K");
  shown_ = false;
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

void check_writable(const std::string& path) {
  std::error_code none;
  const auto status = std::filesystem::status(path, none);
  if (path.empty() || path == "-" || std::filesystem::is_fifo(status)) return;  // its reader would take it for the end
  if (!std::ofstream(path, std::ios::app)) {
    throw Error(fmt::format("[bench] --json: cannot write to '{}'; expected a file that can be created", path));
  }
}

void write_json(const std::string& path, const nlohmann::json& json) {
  if (path.empty()) return;
  const std::string text = json.dump(2) + "\n";
  if (path == "-") {
    fmt::print("{}", text);
    return;
  }
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

std::string count_text(double value) {
  if (value >= 1e6) return digits_text(value / 1e6) + "M";
  if (value >= 1e3) return digits_text(value / 1e3) + "k";
  return digits_text(value);
}

std::string digits_text(double value) {
  if (!std::isfinite(value)) return "-";
  const int before = value == 0 ? 1 : static_cast<int>(std::floor(std::log10(std::fabs(value)))) + 1;
  return fmt::format("{:.{}f}", value, std::clamp(3 - before, 0, 6));
}

}  // namespace deltanet::cli
