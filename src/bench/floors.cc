#include "bench/floors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <thread>

#include "base/text.h"
#include "bench/memory.h"
#include "bench/rows.h"
#include "bench/step_kernel.h"
#include "bench/work.h"
#include "deltanet/deltanet.h"

namespace deltanet::bench {
namespace {

constexpr int64_t kLong = 65536, kMemoryLength = 32768;
constexpr int kTries = 5;
constexpr Shape kShape{1, kFloorLength, 8, 8, 128, 128, 1};

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
  FloorBench(const FloorOptions& options, const Report& report) : options_(options), report_(report) {}
  std::vector<Floor> run();

 private:
  std::vector<Times> measure(const std::string& what, std::vector<std::unique_ptr<Kernel>>& kernels, int rounds,
                             int tries, Clock clock);
  void check(const std::string& label, Workspace& workspace);
  void compare_rows();
  void compare_threads(int64_t heads, double forward_floor);
  void compare_lengths();
  void compare_step();
  void measure_memory();
  int rounds(int full, int quick) const { return options_.quick ? quick : full; }

  const FloorOptions& options_;
  const Report& report_;
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
  report_(fmt::format("{}: warming up", what));
  const auto seconds = interleave(
      candidates, rounds * tries,
      [&](int pass) { report_(fmt::format("{}: round {} of {}", what, pass / tries + 1, rounds)); }, clock);
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
  report_(fmt::format("{}: checking", label));
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
  const std::vector<Times> measured = measure("rows", kernels, rounds(21, 3), kTries, options_.clock);
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
  const std::string what = fmt::format("T={} against T={}", kLong, kFloorLength);
  const int64_t needed = workspace_bytes({bench_row("gdn", true)}, long_shape, true);
  if (static_cast<double>(needed) > 0.8 * static_cast<double>(available_bytes())) {
    floors_.push_back({what + ": tokens/s", ">=", 0.95, {}, "not enough memory"});
    return;
  }
  report_(fmt::format("{}: preparing", what));
  Workspace long_workspace(long_shape), workspace(kShape);
  check("gdn", long_workspace);
  std::vector<std::unique_ptr<Kernel>> kernels;
  kernels.push_back(std::make_unique<Kernel>("gdn", workspace, 1, kCalls));
  kernels.push_back(std::make_unique<Kernel>("gdn", long_workspace, 1));
  const std::vector<Times> times = measure(what, kernels, rounds(7, 3), 1, options_.clock);
  const double work = static_cast<double>(kLong) / static_cast<double>(kCalls * kFloorLength);
  const auto add = [&](const char* direction, const std::vector<double>& brief, const std::vector<double>& lengthy) {
    std::vector<double> speed = ratios(brief, lengthy);
    for (double& x : speed) x *= work;
    floors_.push_back({fmt::format("{}, {}: tokens/s", what, direction), ">=", 0.95, speed});
  };
  add("forward", times[0].forward, times[1].forward);
  add("forward+backward", times[0].training, times[1].training);
}

void FloorBench::compare_step() {
  report_("decode step");
  Shape shape = kShape;
  shape.T = 1;
  const StepKernelResult result = measure_step_kernel(shape, rounds(51, 15));
  floors_.push_back({"decode step against a plain four-pass loop: speed", ">=", 1.8, result.ratio,
                     result.ratio.empty() ? fmt::format("wrong, error {}", number_text(result.error)) : ""});
}

void FloorBench::measure_memory() {
  report_("memory of backward");
  Shape shape = kShape;
  shape.T = kMemoryLength;
  const BackwardMemory memory = measure_backward_memory("gdn", shape, 1);
  floors_.push_back({fmt::format("extra memory of backward, T={}: of inputs and gradients", kMemoryLength),
                     "<=",
                     0.5,
                     {memory.ratio()}});
}

std::vector<Floor> FloorBench::run() {
  measure_memory();
  compare_rows();
  compare_threads(8, 1.85);
  compare_threads(1, 1.6);
  compare_lengths();
  compare_step();
  return floors_;
}

}  // namespace

std::vector<Floor> measure_floors(const FloorOptions& options, const Report& report) {
  return FloorBench(options, report).run();
}

}  // namespace deltanet::bench
