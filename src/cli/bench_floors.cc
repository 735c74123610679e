// `deltanet bench floors`: what this library promises about speed and memory, measured in one run. Everything is fp32
// with B=1, H=8, K=V=128, T=4096, the L2 norm inside and one thread, unless a line says otherwise.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/text.h"
#include "bench/measure.h"
#include "bench/step_kernel.h"
#include "cli/bench.h"
#include "cli/bench_memory.h"
#include "bench/work.h"
#include "cli/json_file.h"
#include "cli/terminal.h"
#include "deltanet/deltanet.h"

namespace deltanet::cli {
using namespace bench;
namespace {

constexpr int64_t kLength = 4096, kLong = 65536, kMemoryLength = 32768;
constexpr int kTries = 5;
constexpr Shape kShape{1, kLength, 8, 8, 128, 128, 1};

struct Settings {
  std::string target, json;
  bool quick = false, cpu_time = false;
};

struct Floor {
  std::string what;
  std::string relation;  // "<=" or ">="
  double bound = 0;
  std::vector<double> values = {};  // one per round
  std::string problem = {};         // why there are none

  double measured() const { return median(values); }
  bool holds() const { return relation == "<=" ? measured() <= bound : measured() >= bound; }  // NaN fails
};

// Forward and backward of one row on fixed tensors.
class Kernel {
 public:
  Kernel(const std::string& label, Workspace& workspace, int threads, int calls = 1)
      : row_(bench_row(label, true)), work_(workspace.work(row_.spec, true)), calls_(calls) {
    options_.threads = threads;
  }
  std::function<void()> forward() {
    return [this] {
      for (int i = 0; i < calls_; ++i) deltanet::forward(row_.spec, work_.inputs, work_.outputs, options_);
    };
  }
  std::function<void()> backward() {
    return [this] {
      for (int i = 0; i < calls_; ++i) {
        deltanet::backward(row_.spec, work_.inputs, work_.upstream, work_.gradients, options_);
      }
    };
  }

 private:
  const BenchRow row_;
  const Work work_;
  const int calls_;
  Options options_;
};

// Seconds of one kernel, one per round.
struct Times {
  std::vector<double> forward, training;
};

class FloorBench {
 public:
  explicit FloorBench(const Settings& settings) : settings_(settings) {}
  int run();

 private:
  std::vector<Times> measure(const std::string& what, std::vector<std::unique_ptr<Kernel>>& kernels, int rounds,
                             int tries, Clock clock);
  void check(const std::string& label, Workspace& workspace);
  void compare_rows();
  void compare_threads(int64_t heads, double forward_floor);
  void compare_lengths();
  void compare_step();
  void measure_memory();
  void print() const;
  Clock clock() const { return settings_.cpu_time ? Clock::kCpu : Clock::kWall; }
  int rounds(int full, int quick) const { return settings_.quick ? quick : full; }

  const Settings& settings_;
  Progress progress_;
  std::vector<Floor> floors_;
};

// The least of each run of `tries` values.
std::vector<double> best_of(const std::vector<double>& values, int tries) {
  std::vector<double> best;
  for (auto first = values.begin(); first != values.end(); first += tries) {
    best.push_back(*std::min_element(first, first + tries));
  }
  return best;
}

// Each round takes the best of several tries of every kernel, the tries of all kernels in turn: what else the machine
// does only ever adds time, and ratios within a few percent would drown in it.
std::vector<Times> FloorBench::measure(const std::string& what, std::vector<std::unique_ptr<Kernel>>& kernels,
                                       int rounds, int tries, Clock clock) {
  std::vector<std::function<void()>> candidates;
  candidates.reserve(2 * kernels.size());
  for (const auto& kernel : kernels) candidates.push_back(kernel->forward());
  for (const auto& kernel : kernels) candidates.push_back(kernel->backward());
  progress_.show(fmt::format("{}: warming up", what));
  const auto seconds = interleave(
      candidates, rounds * tries,
      [&](int pass) { progress_.show(fmt::format("{}: round {} of {}", what, pass / tries + 1, rounds)); }, clock);
  std::vector<Times> times;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const std::vector<double> forward = best_of(seconds[i], tries);
    times.push_back({forward, sums(forward, best_of(seconds[kernels.size() + i], tries))});
  }
  return times;
}

void FloorBench::check(const std::string& label, Workspace& workspace) {
  const auto require = [&](const char* against, double error, double tolerance) {
    if (error <= tolerance) return;
    throw Error(fmt::format("[bench floors] {}: error {} against {}; expected at most {}, so nothing is timed", label,
                            number_text(error), against, number_text(tolerance)));
  };
  progress_.show(fmt::format("{}: checking", label));
  const BenchRow row = bench_row(label, true);
  require("the reference", error_against_reference(row, workspace.shape(), true, 1), kReferenceTolerance);
  const double error = error_against_recurrent(row, workspace, workspace.work(row.spec, true));
  require("the recurrent form", error, kRecurrentTolerance);
}

void FloorBench::compare_rows() {
  const std::vector<std::string> labels = {"gdn", "pgdn", kDistinctKeys, "kda", "pkda"};

  Workspace workspace(kShape);
  std::vector<std::unique_ptr<Kernel>> kernels;
  kernels.reserve(labels.size());
  for (const std::string& label : labels) {
    check(label, workspace);
    kernels.push_back(std::make_unique<Kernel>(label, workspace, 1));
  }
  std::map<std::string, Times> times;
  const std::vector<Times> measured = measure("rows", kernels, rounds(21, 3), kTries, clock());
  for (std::size_t i = 0; i < labels.size(); ++i) times[labels[i]] = measured[i];

  const auto add = [&](const std::string& a, const std::string& b, double bound, bool training) {
    const char* direction = training ? "forward+backward" : "forward";
    const auto& [over, under] = std::pair(times[a], times[b]);
    floors_.push_back({fmt::format("{} against {}, {}: time", a, b, direction), "<=", bound,
                       training ? ratios(over.training, under.training) : ratios(over.forward, under.forward)});
  };
  add("kda", "gdn", 1.5, false);
  for (const bool training : {false, true}) add("pgdn", "gdn", 1.06, training);
  for (const bool training : {false, true}) add("pkda", "kda", 1.06, training);
  for (const bool training : {false, true}) add(kDistinctKeys, "gdn", 1.02, training);
}

void FloorBench::compare_threads(int64_t heads, double floor) {
  const std::string what = fmt::format("2 threads against 1{}", heads == 8 ? "" : fmt::format(", H={}", heads));
  if (std::thread::hardware_concurrency() < 2) {
    floors_.push_back({what + ": speed", ">=", floor, {}, "this machine has one CPU"});
    return;
  }
  Shape shape = kShape;
  shape.H = shape.U = heads;
  Workspace workspace(shape);
  check("gdn", workspace);
  std::vector<std::unique_ptr<Kernel>> kernels;
  // Several calls in a row, as a program makes them: a thread that has slept while the other setting was measured takes
  // its time to wake.
  const int calls = heads == 8 ? 2 : 8;
  for (const int threads : {1, 2}) kernels.push_back(std::make_unique<Kernel>("gdn", workspace, threads, calls));
  const std::vector<Times> times = measure(what, kernels, rounds(15, 3), kTries, Clock::kWall);
  floors_.push_back({what + ", forward: speed", ">=", floor, ratios(times[0].forward, times[1].forward)});
  floors_.push_back({what + ", forward+backward: speed", ">=", floor, ratios(times[0].training, times[1].training)});
}

void FloorBench::compare_lengths() {
  constexpr int kCalls = 4;  // of the short one, so that both take long enough to see the same noise
  Shape long_shape = kShape;
  long_shape.T = kLong;
  const std::string what = fmt::format("T={} against T={}", kLong, kLength);
  const int64_t needed = workspace_bytes({bench_row("gdn", true)}, long_shape, true);
  if (static_cast<double>(needed) > 0.8 * static_cast<double>(available_bytes())) {
    floors_.push_back({what + ": tokens/s", ">=", 0.95, {}, "not enough memory"});
    return;
  }
  progress_.show(fmt::format("{}: preparing", what));
  Workspace long_workspace(long_shape), workspace(kShape);
  check("gdn", long_workspace);
  std::vector<std::unique_ptr<Kernel>> kernels;
  kernels.push_back(std::make_unique<Kernel>("gdn", workspace, 1, kCalls));
  kernels.push_back(std::make_unique<Kernel>("gdn", long_workspace, 1));
  const std::vector<Times> times = measure(what, kernels, rounds(7, 3), 1, clock());
  const double work = static_cast<double>(kLong) / static_cast<double>(kCalls * kLength);
  const auto add = [&](const char* direction, const std::vector<double>& brief, const std::vector<double>& lengthy) {
    std::vector<double> speed = ratios(brief, lengthy);
    for (double& x : speed) x *= work;
    floors_.push_back({fmt::format("{}, {}: tokens/s", what, direction), ">=", 0.95, speed});
  };
  add("forward", times[0].forward, times[1].forward);
  add("forward+backward", times[0].training, times[1].training);
}

void FloorBench::compare_step() {
  progress_.show("decode step");
  Shape shape = kShape;
  shape.T = 1;
  const StepKernelResult result = measure_step_kernel(shape, rounds(51, 15));
  floors_.push_back({"decode step against a plain four-pass loop: speed", ">=", 1.8, result.ratio,
                     result.ratio.empty() ? fmt::format("wrong, error {}", number_text(result.error)) : ""});
}

void FloorBench::measure_memory() {
  progress_.show("memory of backward");
  Shape shape = kShape;
  shape.T = kMemoryLength;
  const BackwardMemory memory = measure_backward_memory("gdn", shape, 1);
  floors_.push_back({fmt::format("extra memory of backward, T={}: of inputs and gradients", kMemoryLength),
                     "<=",
                     0.5,
                     {memory.ratio()}});
}

void FloorBench::print() const {
  fmt::print("{}, SIMD {}; fp32, B=1 H=8 K=V=128 T={}, L2 norm inside, one thread unless said otherwise\n\n",
             cpu_model(), simd_target(), kLength);
  std::vector<std::vector<std::string>> table = {
      {bold("what"), bold("measured"), bold("p10–p90"), bold("floor"), bold("")}};
  for (const Floor& floor : floors_) {
    const bool known = floor.problem.empty();
    const bool spread = floor.values.size() > 1;
    table.push_back(
        {floor.what, known ? fmt::format("{:.3f}x", floor.measured()) : floor.problem,
         spread ? fmt::format("{:.3f}–{:.3f}", quantile(floor.values, 0.1), quantile(floor.values, 0.9)) : "",
         fmt::format("{} {:.2f}x", floor.relation, floor.bound), verdict(floor.holds())});
  }
  print_table(table, {1, 2, 3});
}

int FloorBench::run() {
  const double peak = measure_peak(1, 0.2);
  measure_memory();
  compare_rows();
  compare_threads(8, 1.85);
  compare_threads(1, 1.6);
  compare_lengths();
  compare_step();
  progress_.clear();

  if (settings_.json != "-") print();
  nlohmann::json lines = nlohmann::json::array();
  bool all = true;
  for (const Floor& floor : floors_) {
    all = all && floor.holds();
    const bool known = !floor.values.empty();
    lines.push_back({{"what", floor.what},
                     {"measured", known ? nlohmann::json(floor.measured()) : nlohmann::json()},
                     {"p10", known ? nlohmann::json(quantile(floor.values, 0.1)) : nlohmann::json()},
                     {"p90", known ? nlohmann::json(quantile(floor.values, 0.9)) : nlohmann::json()},
                     {"relation", floor.relation},
                     {"floor", floor.bound},
                     {"problem", floor.problem},
                     {"pass", floor.holds()}});
  }
  write_json(settings_.json, {{"benchmark", "floors"},
                              {"machine", machine_json(1)},
                              {"clock", settings_.cpu_time ? "cpu" : "wall"},
                              {"peak_gflops", peak},
                              {"floors", lines},
                              {"pass", all}});
  return all ? 0 : 1;
}

int run(const Settings& settings) {
  check_writable(settings.json);
  if (!settings.target.empty()) set_simd_target(settings.target);
  return FloorBench(settings).run();
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
