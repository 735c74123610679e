// `deltanet bench model`: a language model against the machine.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "bench/model.h"
#include "cli/bench/bench.h"
#include "cli/json_file.h"
#include "cli/terminal.h"
#include "deltanet/runtime.h"

namespace deltanet::cli {
namespace {

struct Settings {
  bench::ModelBenchOptions model;
  std::string json;
  bool no_load = false;
};

void print(const bench::ModelBenchResult& result) {
  fmt::print("{}, {} parameters, {} threads, {} on {}\n\n", bold(result.model), grouped_text(result.parameters),
             result.threads, simd_target(), bench::cpu_model());
  std::vector<std::vector<std::string>> table;
  for (const auto& [name, unit, floor] : result.figures) {
    const bool promised = !floor.relation.empty();
    table.push_back({floor.what, digits_text(floor.measured()), unit,
                     promised ? fmt::format("{} {}", floor.relation, floor.bound) : "",
                     promised ? verdict(floor.holds()) : ""});
  }
  print_table(table, {1});
}

nlohmann::json json_of(const Settings& settings, const bench::ModelBenchResult& result) {
  nlohmann::json json = {
      {"machine", bench::machine_json(result.threads)}, {"model", result.model}, {"tokens", settings.model.tokens}};
  for (const auto& [name, unit, floor] : result.figures) {
    json["results"][name] = floor.measured();
    if (floor.relation.empty()) continue;
    json["floors"][name] = {{"relation", floor.relation}, {"bound", floor.bound}, {"holds", floor.holds()}};
  }
  return json;
}

int run(Settings settings) {
  check_writable(settings.json);
  settings.model.load = !settings.no_load;
  Progress progress;
  const bench::ModelBenchResult result =
      bench::measure_model(settings.model, [&](const std::string& doing) { progress.show(doing); });
  progress.clear();
  print(result);
  write_json(settings.json, json_of(settings, result));
  for (const bench::ModelFigure& figure : result.figures) {
    if (!figure.floor.holds()) return 1;
  }
  return 0;
}

}  // namespace

std::function<int()> setup_bench_model(const Arguments& args) {
  const auto settings = std::make_shared<Settings>();
  args.option("--preset", settings->model.preset, "Model, ROW-SIZE").show_default();
  args.option("--directory", settings->model.directory,
              "A checkpoint's configuration instead; it is also what is loaded");
  args.option("--tokens", settings->model.tokens, "Length of the prefill").show_default().positive();
  args.option("--rounds", settings->model.rounds, "Measurements of prefill and loading, of which the median counts")
      .show_default()
      .positive();
  args.option("--steps", settings->model.steps, "Tokens decoded, of which the median counts").show_default().positive();
  args.option("--threads", settings->model.threads, "Threads (default: one per core)").not_negative();
  args.flag("--no-load", settings->no_load, "Do not write and load a checkpoint");
  args.option("--scratch", settings->model.scratch,
              "Where the checkpoint is written for a moment (default: the system's)");
  args.option("--json", settings->json, "Write the results to this file (- for standard output)");
  return [settings] { return run(*settings); };
}

}  // namespace deltanet::cli
