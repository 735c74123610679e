// `deltanet bench kernels`: time against length.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "bench/kernels.h"
#include "cli/bench/bench.h"
#include "cli/json_file.h"
#include "cli/terminal.h"
#include "deltanet/deltanet.h"

namespace deltanet::cli {
namespace {

using bench::kBaseline;
using bench::KernelTimes;

struct Settings {
  bench::KernelOptions kernels;
  std::vector<int64_t> lengths;
  double seconds = 0.0;
  std::string direction = "both";
  std::string target, json;
  bool quick = false, no_l2norm = false, list = false, cpu_time = false;
};

void add_cells(const bench::KernelFigures& f, std::vector<std::string>& cells) {
  cells.push_back(digits_text(f.ms));
  cells.push_back(fmt::format("{}–{}", digits_text(f.p10), digits_text(f.p90)));
  cells.push_back(count_text(f.tokens_per_second));
  cells.push_back(digits_text(f.gflops));
  cells.push_back(std::isfinite(f.share) ? fmt::format("{:.0f}%", f.share * 100) : "-");
  cells.push_back(std::isfinite(f.against_baseline) ? fmt::format("{:.2f}x", f.against_baseline) : "-");
}

nlohmann::json finite_or_null(double value) { return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(); }

std::vector<std::vector<std::string>> heading_of(int64_t length, bool with_backward) {
  std::vector<std::vector<std::string>> table(2);
  table[0] = {bold(fmt::format("T = {}", length)), "", bold("forward"), "", "", "", ""};
  if (with_backward) table[0].insert(table[0].end(), {"", bold("forward+backward")});
  table[1] = {"row"};
  for (int i = 0; i < (with_backward ? 2 : 1); ++i) {
    table[1].insert(table[1].end(), {"ms", "p10–p90", "tokens/s", "GFLOP/s", "peak", fmt::format("/{}", kBaseline)});
  }
  return table;
}

// The table of one length; its numbers go to `results`, too.
std::vector<std::vector<std::string>> table_of(const Settings& settings, int64_t length,
                                               const std::vector<KernelTimes>& rows, double peak,
                                               nlohmann::json& results) {
  const auto tokens = static_cast<double>(settings.kernels.shape.B * length);
  const auto baseline =
      std::find_if(rows.begin(), rows.end(), [](const KernelTimes& row) { return row.label == kBaseline; });
  std::vector<std::vector<std::string>> table = heading_of(length, settings.kernels.with_backward);
  for (const KernelTimes& row : rows) {
    std::vector<std::string> cells = {row.label};
    if (!row.correct()) {
      cells.push_back(red(fmt::format("WRONG: error {} against the reference, {} against the recurrent form",
                                      number_text(row.reference_error), number_text(row.recurrent_error))));
    }
    for (const bool training : {false, true}) {
      if (training && !settings.kernels.with_backward) continue;
      nlohmann::json result = {{"row", row.label},
                               {"length", length},
                               {"direction", training ? "forward+backward" : "forward"},
                               {"error_reference", finite_or_null(row.reference_error)},
                               {"error_recurrent", finite_or_null(row.recurrent_error)},
                               {"correct", row.correct()}};
      if (row.correct()) {
        const bench::KernelFigures f =
            bench::figures_of(row, baseline != rows.end() ? &*baseline : nullptr, training, tokens, peak);
        add_cells(f, cells);
        result.update({{"repeats", f.repeats},
                       {"median_ms", f.ms},
                       {"p10_ms", f.p10},
                       {"p90_ms", f.p90},
                       {"min_ms", f.shortest},
                       {"max_ms", f.longest},
                       {"tokens_per_s", f.tokens_per_second},
                       {"gflops", finite_or_null(f.gflops)},
                       {"peak_share", finite_or_null(f.share)},
                       {"ratio_to_gdn", finite_or_null(f.against_baseline)}});
      }
      results.push_back(std::move(result));
    }
    table.push_back(std::move(cells));
  }
  return table;
}

int measure(const Settings& settings) {
  const bool printing = settings.json != "-";
  const bench::KernelOptions& kernels = settings.kernels;
  const Shape& shape = kernels.shape;
  const char* const plural = kernels.threads == 1 ? "" : "s";
  Progress progress;
  bench::KernelBench kernel_bench(kernels, [&](const std::string& doing) { progress.show(doing); });
  if (printing) {
    fmt::print("{}, SIMD {}, {} thread{}; B={} H={}{} K={} V={}, {}\n", bench::cpu_model(), simd_target(),
               kernels.threads, plural, shape.B, shape.H,
               shape.U == shape.H ? std::string() : fmt::format(" U={}", shape.U), shape.K, shape.V,
               kernels.l2norm ? "L2 norm of q and k inside" : "q and k as given");
    fmt::print("Every row is checked first: against the float64 reference, and chunkwise against token-recurrent.\n");
  }
  kernel_bench.check();
  nlohmann::json results = nlohmann::json::array(), skipped = nlohmann::json::array();
  bool correct = true;
  for (const int64_t length : settings.lengths) {
    if (const auto obstacle = kernel_bench.obstacle(length)) {
      skipped.push_back({{"length", length}, {"reason", *obstacle}});
      progress.clear();
      if (printing) fmt::print("\nT = {}: skipped, {}\n", length, *obstacle);
      continue;
    }
    const std::vector<KernelTimes> rows = kernel_bench.measure(length);
    for (const KernelTimes& row : rows) correct = correct && row.correct();
    const auto table = table_of(settings, length, rows, kernel_bench.peak(), results);
    progress.clear();
    if (!printing) continue;
    fmt::print("\n");
    print_table(table, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
    std::fflush(stdout);
  }
  progress.clear();
  if (printing) {
    fmt::print(
        "\nPeak: {} GFLOP/s of fused multiply-adds on {} thread{}, the best of all rounds. GFLOP/s count the products\n"
        "of the chunk algorithm, not what backward recomputes. /{} is the median of the ratios within a round.\n",
        digits_text(kernel_bench.peak()), kernels.threads, plural, kBaseline);
    if (!correct) fmt::print("{}\n", red("Some rows are wrong: no speed is given for them."));
  }
  write_json(
      settings.json,
      {{"benchmark", "kernels"},
       {"machine", bench::machine_json(kernels.threads)},
       {"clock", settings.cpu_time ? "cpu" : "wall"},
       {"peak_gflops", kernel_bench.peak()},
       {"shape",
        {{"B", shape.B}, {"H", shape.H}, {"U", shape.U}, {"K", shape.K}, {"V", shape.V}, {"l2norm", kernels.l2norm}}},
       {"results", results},
       {"skipped", skipped}});
  return correct ? 0 : 1;
}

int run(Settings settings) {
  bench::KernelOptions& kernels = settings.kernels;
  if (settings.list) {
    for (const std::string& label : bench::default_bench_labels()) fmt::print("{}\n", label);
    fmt::print("\nand every other row of `deltanet rows`.\n");
    return 0;
  }
  if (kernels.shape.U != 0 && kernels.shape.U % kernels.shape.H != 0) {
    throw Error(fmt::format("[bench] --value-heads: given {}; expected a multiple of --heads, {}", kernels.shape.U,
                            kernels.shape.H));
  }
  if (settings.cpu_time && kernels.threads != 1) {
    throw Error(
        fmt::format("[bench] --cpu-time: given {} threads; expected one, whose time is counted", kernels.threads));
  }
  if (!settings.target.empty()) set_simd_target(settings.target);
  check_writable(settings.json);
  if (kernels.labels.empty()) kernels.labels = bench::default_bench_labels();
  if (settings.lengths.empty()) {
    settings.lengths = settings.quick ? std::vector<int64_t>{256, 1024}
                                      : std::vector<int64_t>{256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
  }
  kernels.seconds = settings.seconds > 0.0 ? settings.seconds : settings.quick ? 0.3 : 2.0;
  if (kernels.shape.U == 0) kernels.shape.U = kernels.shape.H;
  kernels.with_backward = settings.direction == "both";
  kernels.l2norm = !settings.no_l2norm;
  kernels.clock = settings.cpu_time ? bench::Clock::kCpu : bench::Clock::kWall;
  return measure(settings);
}

}  // namespace

std::function<int()> setup_bench_kernels(const Arguments& args) {
  const auto s = std::make_shared<Settings>();
  Shape& shape = s->kernels.shape;
  args.option("--rows", s->kernels.labels, "Rows to time, separated by commas (default: see --list)").comma_separated();
  args.option("--lengths", s->lengths, "Numbers of tokens, separated by commas (default: 256 ... 32768)")
      .comma_separated()
      .between(int64_t{1}, int64_t{1} << 24);
  args.option("--batch", shape.B, "Sequences").between(1, 4096).show_default();
  args.option("--heads", shape.H, "Key heads").between(1, 4096).show_default();
  args.option("--value-heads", shape.U, "Value heads, a multiple of --heads (default: --heads)").between(1, 4096);
  args.option("--key-dim", shape.K, "Key dimension").between(1, 4096).show_default();
  args.option("--value-dim", shape.V, "Value dimension").between(1, 4096).show_default();
  args.option("--threads", s->kernels.threads, "Threads").between(1, 1024).show_default();
  args.option("--repeats", s->kernels.repeats, "Runs of each row at each length (default: what fits into --seconds)")
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
