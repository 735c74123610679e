// `deltanet bench floors`: what this library promises about speed and memory, measured in one run.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "bench/floors.h"
#include "cli/bench/bench.h"
#include "cli/json_file.h"
#include "cli/terminal.h"
#include "deltanet/runtime.h"

namespace deltanet::cli {
namespace {

using bench::Floor;

struct Settings {
  std::string target, json;
  bool quick = false, cpu_time = false;
};

void print(const std::vector<Floor>& floors) {
  fmt::print("{}, SIMD {}; fp32, B=1 H=8 K=V=128 T={}, L2 norm inside, one thread unless said otherwise\n\n",
             bench::cpu_model(), simd_target(), bench::kFloorLength);
  std::vector<std::vector<std::string>> table = {
      {bold("what"), bold("measured"), bold("p10–p90"), bold("floor"), bold("")}};
  for (const Floor& floor : floors) {
    const bool known = floor.problem.empty();
    const bool spread = floor.values.size() > 1;
    table.push_back(
        {floor.what, known ? fmt::format("{:.3f}x", floor.measured()) : floor.problem,
         spread ? fmt::format("{:.3f}–{:.3f}", bench::quantile(floor.values, 0.1), bench::quantile(floor.values, 0.9))
                : "",
         fmt::format("{} {:.2f}x", floor.relation, floor.bound), verdict(floor.holds())});
  }
  print_table(table, {1, 2, 3});
}

int run(const Settings& settings) {
  check_writable(settings.json);
  if (!settings.target.empty()) set_simd_target(settings.target);
  const double peak = bench::measure_peak(1, 0.2);
  Progress progress;
  const std::vector<Floor> floors = bench::measure_floors(
      {.quick = settings.quick, .clock = settings.cpu_time ? bench::Clock::kCpu : bench::Clock::kWall},
      [&](const std::string& doing) { progress.show(doing); });
  progress.clear();

  if (settings.json != "-") print(floors);
  nlohmann::json lines = nlohmann::json::array();
  for (const Floor& floor : floors) {
    const bool known = !floor.values.empty();
    lines.push_back({{"what", floor.what},
                     {"measured", known ? nlohmann::json(floor.measured()) : nlohmann::json()},
                     {"p10", known ? nlohmann::json(bench::quantile(floor.values, 0.1)) : nlohmann::json()},
                     {"p90", known ? nlohmann::json(bench::quantile(floor.values, 0.9)) : nlohmann::json()},
                     {"relation", floor.relation},
                     {"floor", floor.bound},
                     {"problem", floor.problem},
                     {"pass", floor.holds()}});
  }
  write_json(settings.json, {{"benchmark", "floors"},
                             {"machine", bench::machine_json(1)},
                             {"clock", settings.cpu_time ? "cpu" : "wall"},
                             {"peak_gflops", peak},
                             {"floors", lines},
                             {"pass", bench::all_hold(floors)}});
  return bench::all_hold(floors) ? 0 : 1;
}

}  // namespace

std::function<int()> setup_bench_floors(const Arguments& args) {
  const auto s = std::make_shared<Settings>();
  args.option("--target", s->target, "SIMD target to use instead of the best one (see deltanet --version)");
  args.option("--json", s->json, "Write the results to this file (-: to standard output, instead of the table)");
  args.flag("--cpu-time", s->cpu_time,
            "Count the time of the thread, not of the clock, where one thread is compared: steadier on a busy machine");
  args.flag("--quick", s->quick, "Fewer repeats; the numbers are less certain");
  return [s] { return run(*s); };
}

}  // namespace deltanet::cli
