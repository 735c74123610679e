// `deltanet bench kernels`: time against length.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "bench/measure.h"
#include "cli/bench.h"
#include "bench/rows.h"
#include "bench/work.h"
#include "cli/json_file.h"
#include "cli/terminal.h"
#include "deltanet/deltanet.h"

namespace deltanet::cli {
using namespace bench;
namespace {

constexpr int kMinRepeats = 3, kMaxRepeats = 25;
constexpr double kPeakSeconds = 0.02;

struct Settings {
  std::vector<std::string> labels;
  std::vector<int64_t> lengths;
  Shape shape{1, 0, 8, 0, 128, 128, 0};
  int threads = 1;
  int repeats = 0;       // 0: as many as fit into `seconds`
  double seconds = 0.0;  // for one row at one length
  std::string direction = "both";
  std::string target, json;
  bool quick = false, no_l2norm = false, list = false, cpu_time = false;
};

// One row at one length.
struct Run {
  BenchRow row;
  Work work;
  double reference_error = 0, recurrent_error = 0;
  int repeats = 0;
  std::vector<double> forward, backward;  // seconds, one per round

  bool correct() const { return reference_error <= kReferenceTolerance && recurrent_error <= kRecurrentTolerance; }
};

class KernelBench {
 public:
  explicit KernelBench(const Settings& settings) : settings_(settings), with_backward_(settings.direction == "both") {
    for (const std::string& label : settings.labels) rows_.push_back(bench_row(label, !settings.no_l2norm));
    shape_ = settings.shape;
    if (shape_.U == 0) shape_.U = shape_.H;
    shape_.N = shape_.B;
  }

  int run();

 private:
  void print_heading() const;
  void check_rows();
  void measure(int64_t length);
  void time_runs(std::vector<Run>& runs);
  void report(const Shape& shape, const std::vector<Run>& runs);
  bool printing() const { return settings_.json != "-"; }

  const Settings& settings_;
  const bool with_backward_;
  std::vector<BenchRow> rows_;
  std::vector<double> reference_errors_;
  Shape shape_;
  Progress progress_;
  double peak_ = 0;  // the best of all samples, GFLOP/s
  bool all_correct_ = true;
  nlohmann::json results_ = nlohmann::json::array();
  nlohmann::json skipped_ = nlohmann::json::array();
};

void KernelBench::print_heading() const {
  fmt::print("{}, SIMD {}, {} thread{}; B={} H={}{} K={} V={}, {}\n", cpu_model(), simd_target(), settings_.threads,
             settings_.threads == 1 ? "" : "s", shape_.B, shape_.H,
             shape_.U == shape_.H ? std::string() : fmt::format(" U={}", shape_.U), shape_.K, shape_.V,
             settings_.no_l2norm ? "q and k as given" : "L2 norm of q and k inside");
  fmt::print("Every row is checked first: against the float64 reference, and chunkwise against token-recurrent.\n");
}

// The reference does not depend on the length.
void KernelBench::check_rows() {
  for (const BenchRow& row : rows_) {
    progress_.show(fmt::format("{}: against the reference", row.label));
    reference_errors_.push_back(error_against_reference(row, shape_, with_backward_, settings_.threads));
  }
}

void KernelBench::time_runs(std::vector<Run>& runs) {
  Options options;
  options.threads = settings_.threads;
  const Clock clock = settings_.cpu_time ? Clock::kCpu : Clock::kWall;
  const auto forward_seconds = [&](Run& run) {
    return seconds_of([&] { forward(run.row.spec, run.work.inputs, run.work.outputs, options); }, clock);
  };
  const auto backward_seconds = [&](Run& run) {
    if (!with_backward_) return 0.0;
    return seconds_of([&] { backward(run.row.spec, run.work.inputs, run.work.upstream, run.work.gradients, options); },
                      clock);
  };

  int rounds = 0;
  for (Run& run : runs) {
    if (!run.correct()) continue;
    progress_.show(fmt::format("T={}: {}: warming up", run.work.outputs.o.shape[1], run.row.label));
    const double once = forward_seconds(run) + backward_seconds(run);
    run.repeats = std::clamp(static_cast<int>(settings_.seconds / once), kMinRepeats, kMaxRepeats);
    if (settings_.repeats > 0) run.repeats = settings_.repeats;
    rounds = std::max(rounds, run.repeats);
  }
  // All rows take part in every round, as long as they have repeats left: noise hits them alike.
  for (int round = 0; round < rounds; ++round) {
    peak_ = std::max(peak_, measure_peak(settings_.threads, kPeakSeconds));
    for (std::size_t i = 0; i < runs.size(); ++i) {
      Run& run = runs[round % 2 == 0 ? i : runs.size() - 1 - i];
      if (round >= run.repeats) continue;
      progress_.show(
          fmt::format("T={}: {}: round {} of {}", run.work.outputs.o.shape[1], run.row.label, round + 1, rounds));
      run.forward.push_back(forward_seconds(run));
      if (with_backward_) run.backward.push_back(backward_seconds(run));
    }
  }
}

void KernelBench::measure(int64_t length) {
  Shape shape = shape_;
  shape.T = length;
  const int64_t needed = workspace_bytes(rows_, shape, with_backward_);
  const int64_t available = available_bytes();
  if (static_cast<double>(needed) > 0.8 * static_cast<double>(available)) {
    const std::string reason = fmt::format("needs {:.1f} GB of memory, {:.1f} GB are available",
                                           static_cast<double>(needed) * 1e-9, static_cast<double>(available) * 1e-9);
    skipped_.push_back({{"length", length}, {"reason", reason}});
    progress_.clear();
    if (printing()) fmt::print("\nT = {}: skipped, {}\n", length, reason);
    return;
  }
  Workspace workspace(shape);
  std::vector<Run> runs;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    Run run{rows_[i], workspace.work(rows_[i].spec, with_backward_), reference_errors_[i], 0, 0, {}, {}};
    progress_.show(fmt::format("T={}: {}: chunkwise against token-recurrent", length, rows_[i].label));
    run.recurrent_error = error_against_recurrent(run.row, workspace, run.work);
    all_correct_ = all_correct_ && run.correct();
    runs.push_back(std::move(run));
  }
  time_runs(runs);
  progress_.clear();
  report(shape, runs);
}

struct Figures {
  double ms, p10, p90, tokens_per_second, gflops, share, against_baseline;
};

Figures figures_of(const std::vector<double>& seconds, const std::vector<double>& baseline, std::optional<double> flops,
                   double tokens, double peak) {
  const double middle = median(seconds);
  const double gflops = flops ? *flops / middle * 1e-9 : std::nan("");
  return {middle * 1e3,  quantile(seconds, 0.1) * 1e3,     quantile(seconds, 0.9) * 1e3, tokens / middle, gflops,
          gflops / peak, median(ratios(seconds, baseline))};
}

void add_cells(const Figures& f, std::vector<std::string>& cells) {
  cells.push_back(digits_text(f.ms));
  cells.push_back(fmt::format("{}–{}", digits_text(f.p10), digits_text(f.p90)));
  cells.push_back(count_text(f.tokens_per_second));
  cells.push_back(digits_text(f.gflops));
  cells.push_back(std::isfinite(f.share) ? fmt::format("{:.0f}%", f.share * 100) : "-");
  cells.push_back(std::isfinite(f.against_baseline) ? fmt::format("{:.2f}x", f.against_baseline) : "-");
}

nlohmann::json finite_or_null(double value) { return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(); }

void KernelBench::report(const Shape& shape, const std::vector<Run>& runs) {
  const auto tokens = static_cast<double>(shape.B * shape.T);
  const auto found = std::find_if(runs.begin(), runs.end(), [](const Run& run) { return run.row.label == kBaseline; });
  const std::vector<double> none;

  std::vector<std::vector<std::string>> table(2);
  table[0] = {bold(fmt::format("T = {}", shape.T)), "", bold("forward"), "", "", "", ""};
  if (with_backward_) table[0].insert(table[0].end(), {"", bold("forward+backward")});
  table[1] = {"row"};
  for (int i = 0; i < (with_backward_ ? 2 : 1); ++i) {
    table[1].insert(table[1].end(), {"ms", "p10–p90", "tokens/s", "GFLOP/s", "peak", fmt::format("/{}", kBaseline)});
  }
  for (const Run& run : runs) {
    std::vector<std::string> cells = {run.row.label};
    if (!run.correct()) {
      cells.push_back(red(fmt::format("WRONG: error {} against the reference, {} against the recurrent form",
                                      number_text(run.reference_error), number_text(run.recurrent_error))));
    }
    const bool has_baseline = found != runs.end();
    for (const bool training : {false, true}) {
      if (training && !with_backward_) continue;
      nlohmann::json result = {{"row", run.row.label},
                               {"length", shape.T},
                               {"direction", training ? "forward+backward" : "forward"},
                               {"error_reference", finite_or_null(run.reference_error)},
                               {"error_recurrent", finite_or_null(run.recurrent_error)},
                               {"correct", run.correct()}};
      if (run.correct()) {
        const std::vector<double> seconds = training ? sums(run.forward, run.backward) : run.forward;
        const std::vector<double> baseline = !has_baseline ? none
                                             : training    ? sums(found->forward, found->backward)
                                                           : found->forward;
        const std::optional<double> flops =
            training ? training_flops(run.row.spec, shape) : forward_flops(run.row.spec, shape);
        const Figures f = figures_of(seconds, baseline, flops, tokens, peak_);
        add_cells(f, cells);
        result.update({{"repeats", seconds.size()},
                       {"median_ms", f.ms},
                       {"p10_ms", f.p10},
                       {"p90_ms", f.p90},
                       {"min_ms", quantile(seconds, 0) * 1e3},
                       {"max_ms", quantile(seconds, 1) * 1e3},
                       {"tokens_per_s", f.tokens_per_second},
                       {"gflops", finite_or_null(f.gflops)},
                       {"peak_share", finite_or_null(f.share)},
                       {"ratio_to_gdn", finite_or_null(f.against_baseline)}});
      }
      results_.push_back(std::move(result));
    }
    table.push_back(std::move(cells));
  }
  if (!printing()) return;
  fmt::print("\n");
  print_table(table, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  std::fflush(stdout);
}

int KernelBench::run() {
  if (printing()) print_heading();
  for (int i = 0; i < 10; ++i) peak_ = std::max(peak_, measure_peak(settings_.threads, kPeakSeconds));
  check_rows();
  for (const int64_t length : settings_.lengths) measure(length);
  if (printing()) {
    fmt::print(
        "\nPeak: {} GFLOP/s of fused multiply-adds on {} thread{}, the best of all rounds. GFLOP/s count the products\n"
        "of the chunk algorithm, not what backward recomputes. /{} is the median of the ratios within a round.\n",
        digits_text(peak_), settings_.threads, settings_.threads == 1 ? "" : "s", kBaseline);
    if (!all_correct_) fmt::print("{}\n", red("Some rows are wrong: no speed is given for them."));
  }
  write_json(settings_.json, {{"benchmark", "kernels"},
                              {"machine", machine_json(settings_.threads)},
                              {"clock", settings_.cpu_time ? "cpu" : "wall"},
                              {"peak_gflops", peak_},
                              {"shape",
                               {{"B", shape_.B},
                                {"H", shape_.H},
                                {"U", shape_.U},
                                {"K", shape_.K},
                                {"V", shape_.V},
                                {"l2norm", !settings_.no_l2norm}}},
                              {"results", results_},
                              {"skipped", skipped_}});
  return all_correct_ ? 0 : 1;
}

int run(Settings settings) {
  if (settings.list) {
    for (const std::string& label : default_bench_labels()) fmt::print("{}\n", label);
    fmt::print("\nand every other row of `deltanet rows`.\n");
    return 0;
  }
  if (settings.shape.U != 0 && settings.shape.U % settings.shape.H != 0) {
    throw Error(fmt::format("[bench] --value-heads: given {}; expected a multiple of --heads, {}", settings.shape.U,
                            settings.shape.H));
  }
  if (settings.cpu_time && settings.threads != 1) {
    throw Error(
        fmt::format("[bench] --cpu-time: given {} threads; expected one, whose time is counted", settings.threads));
  }
  if (!settings.target.empty()) set_simd_target(settings.target);
  check_writable(settings.json);
  if (settings.labels.empty()) settings.labels = default_bench_labels();
  if (settings.lengths.empty()) {
    settings.lengths = settings.quick ? std::vector<int64_t>{256, 1024}
                                      : std::vector<int64_t>{256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
  }
  if (settings.seconds == 0.0) settings.seconds = settings.quick ? 0.3 : 2.0;
  return KernelBench(settings).run();
}

}  // namespace

std::function<int()> setup_bench_kernels(const Arguments& args) {
  const auto s = std::make_shared<Settings>();
  args.option("--rows", s->labels, "Rows to time, separated by commas (default: see --list)").comma_separated();
  args.option("--lengths", s->lengths, "Numbers of tokens, separated by commas (default: 256 ... 32768)")
      .comma_separated()
      .between(int64_t{1}, int64_t{1} << 24);
  args.option("--batch", s->shape.B, "Sequences").between(1, 4096).show_default();
  args.option("--heads", s->shape.H, "Key heads").between(1, 4096).show_default();
  args.option("--value-heads", s->shape.U, "Value heads, a multiple of --heads (default: --heads)").between(1, 4096);
  args.option("--key-dim", s->shape.K, "Key dimension").between(1, 4096).show_default();
  args.option("--value-dim", s->shape.V, "Value dimension").between(1, 4096).show_default();
  args.option("--threads", s->threads, "Threads").between(1, 1024).show_default();
  args.option("--repeats", s->repeats, "Runs of each row at each length (default: what fits into --seconds)")
      .between(1, 100000);
  args.option("--seconds", s->seconds, "Time for each row at each length; three runs at least (default: 2)").positive();
  args.option("--direction", s->direction, "forward, or both: forward and forward+backward")
      .one_of({"forward", "both"})
      .show_default();
  args.option("--target", s->target, "SIMD target to use instead of the best one (see deltanet --version)");
  args.option("--json", s->json, "Write the results to this file (-: to standard output, instead of the tables)");
  args.flag("--quick", s->quick, "Few lengths and short runs: some seconds in all");
  args.flag("--cpu-time", s->cpu_time, "Count the time of the thread, not of the clock: steadier on a busy machine");
  args.flag("--no-l2norm", s->no_l2norm, "Leave q and k as they are given");
  args.flag("--list", s->list, "List the rows that are timed by default");
  return [s] { return run(*s); };
}

}  // namespace deltanet::cli
