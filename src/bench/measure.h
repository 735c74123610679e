#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

// Clocks, statistics and the machine: what every benchmark needs, whatever it measures.

namespace deltanet::bench {

// kCpu: the time of the calling thread, which leaves out what other programs take from it. For one thread only.
enum class Clock { kWall, kCpu };

// Called with what is being done now, such as "T=256: gdn: round 1 of 3".
using Report = std::function<void(const std::string& doing)>;

double seconds_of(const std::function<void()>& run, Clock clock = Clock::kWall);

// The q-quantile by linear interpolation; NaN when there are no values.
double quantile(std::vector<double> values, double q);
inline double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

// a[i] / b[i], as far as both go. Values of one round have seen the same noise, so the median of these ratios is
// steadier than the ratio of the medians.
std::vector<double> ratios(const std::vector<double>& a, const std::vector<double>& b);
std::vector<double> sums(const std::vector<double>& a, const std::vector<double>& b);

// Runs every candidate once per round and returns its seconds, [candidate][round]. Every other round goes backwards, so
// that no candidate always follows the same one. The first, unmeasured round warms up.
std::vector<std::vector<double>> interleave(const std::vector<std::function<void()>>& candidates, int rounds,
                                            const std::function<void(int round)>& on_round = {},
                                            Clock clock = Clock::kWall);

// GFLOP/s of fused multiply-adds when `threads` threads run them at once.
double measure_peak(int threads, double seconds);

std::string cpu_model();

// The CPU, the SIMD target in use, the version of the library, the number of threads.
nlohmann::json machine_json(int threads);

}  // namespace deltanet::bench
