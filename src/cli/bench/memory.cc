// `deltanet bench memory`: what backward takes beyond the tensors of its caller.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "bench/measure.h"
#include "bench/memory.h"
#include "bench/rows.h"
#include "cli/bench/bench.h"
#include "cli/json_file.h"
#include "deltanet/runtime.h"

namespace deltanet::cli {
namespace {

struct Settings {
  std::string label = bench::kBaseline;
  Shape shape{1, 32768, 8, 8, 128, 128, 1};
  int threads = 1;
  std::string target, json;
};

int run(const Settings& settings) {
  check_writable(settings.json);
  if (!settings.target.empty()) set_simd_target(settings.target);
  const bench::BackwardMemory memory =
      bench::measure_backward_memory_here(settings.label, settings.shape, settings.threads);
  const Shape& shape = settings.shape;
  if (settings.json != "-") {
    const auto mb = [](int64_t bytes) { return static_cast<double>(bytes) * 1e-6; };
    fmt::print("{}: backward over B={} T={} H={} K={} V={} on {} thread{}\n", settings.label, shape.B, shape.T, shape.H,
               shape.K, shape.V, settings.threads, settings.threads == 1 ? "" : "s");
    fmt::print("  inputs and gradients  {:.1f} MB\n", mb(memory.tensors));
    fmt::print("  extra at its peak     {:.1f} MB, {:.3f}x\n", mb(memory.extra), memory.ratio());
  }
  write_json(settings.json,
             {{"benchmark", "memory"},
              {"machine", bench::machine_json(settings.threads)},
              {"row", settings.label},
              {"shape", {{"B", shape.B}, {"T", shape.T}, {"H", shape.H}, {"K", shape.K}, {"V", shape.V}}},
              {"tensor_bytes", memory.tensors},
              {"extra_bytes", memory.extra},
              {"ratio", memory.ratio()}});
  return 0;
}

}  // namespace

std::function<int()> setup_bench_memory(const Arguments& args) {
  const auto s = std::make_shared<Settings>();
  args.option("--row", s->label, "Row").show_default();
  args.option("--length", s->shape.T, "Tokens").between(1, 1 << 24).show_default();
  args.option("--heads", s->shape.H, "Heads").between(1, 4096).show_default();
  args.option("--threads", s->threads, "Threads").between(1, 1024).show_default();
  args.option("--target", s->target, "SIMD target to use instead of the best one (see deltanet --version)");
  args.option("--json", s->json, "Write the result to this file (-: to standard output, instead of the text)");
  return [s] {
    s->shape.U = s->shape.H;
    return run(*s);
  };
}

}  // namespace deltanet::cli
