// `deltanet bench train`: training steps of language models, against what oneDNN reaches on their products.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "bench/train.h"
#include "cli/bench/bench.h"
#include "cli/json_file.h"
#include "cli/terminal.h"

namespace deltanet::cli {
namespace {

struct Settings {
  bench::TrainBenchOptions train;
  std::string json;
};

void print(const Settings& settings, const bench::TrainBenchResult& result) {
  const std::string& first = settings.train.rows[0];
  fmt::print("{}, {} x {} tokens, {}, {} threads; oneDNN on the products of the layers: {} GFLOP/s\n\n",
             settings.train.small ? "5.5M" : settings.train.size, result.batch, result.length, settings.train.precision,
             result.threads, digits_text(result.product_rate));
  std::vector<std::vector<std::string>> table = {{bold("row"), bold("parameters"), bold("tokens/s"), bold("s/step"),
                                                  bold("GFLOP/s"), bold("of oneDNN"), bold("time"), bold("loss")}};
  for (const bench::TrainRowResult& row : result.rows) {
    table.push_back({row.row, grouped_text(row.parameters), digits_text(row.tokens_per_second),
                     digits_text(bench::median(row.seconds)), digits_text(row.gflops),
                     fmt::format("{:.1f} %", 100 * row.share), fmt::format("{:.3f}x {}", row.against, first),
                     digits_text(row.loss)});
  }
  print_table(table, {1, 2, 3, 4, 5});
  std::string parts;
  for (const auto& [name, bytes] : result.memory) {
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", name, bytes_text(static_cast<double>(bytes)));
  }
  const auto planned = static_cast<double>(result.planned()), peak = static_cast<double>(result.peak);
  fmt::print("\nmemory of {}: {}; together {}; peak of the process {}, {:.2f}x\n", first, parts, bytes_text(planned),
             bytes_text(peak), peak / planned);
  if (result.floors.empty()) return;
  fmt::print("\n");
  table.clear();
  for (const bench::Floor& floor : result.floors) {
    table.push_back({floor.what, fmt::format("{:.3f}x", floor.measured()),
                     fmt::format("{} {:.2f}x", floor.relation, floor.bound), verdict(floor.holds())});
  }
  print_table(table, {1});
}

nlohmann::json json_of(const Settings& settings, const bench::TrainBenchResult& result) {
  nlohmann::json json = {{"machine", bench::machine_json(result.threads)},
                         {"precision", settings.train.precision},
                         {"batch", result.batch},
                         {"length", result.length},
                         {"onednn_gflops", result.product_rate}};
  for (const bench::TrainRowResult& row : result.rows) {
    json["rows"][row.row] = {{"tokens_per_second", row.tokens_per_second},
                             {"seconds", row.seconds},
                             {"gflops", row.gflops},
                             {"share_of_onednn", row.share},
                             {"time_against_first", row.against}};
  }
  for (const auto& [name, bytes] : result.memory) json["memory"][name] = bytes;
  json["memory"]["peak"] = result.peak;
  json["floors"] = nlohmann::json::array();
  for (const bench::Floor& floor : result.floors) {
    json["floors"].push_back({{"what", floor.what},
                              {"measured", floor.measured()},
                              {"relation", floor.relation},
                              {"floor", floor.bound},
                              {"pass", floor.holds()}});
  }
  return json;
}

int run(const Settings& settings) {
  check_writable(settings.json);
  Progress progress;
  const bench::TrainBenchResult result =
      bench::measure_training(settings.train, [&](const std::string& doing) { progress.show(doing); });
  progress.clear();
  if (settings.json != "-") print(settings, result);
  write_json(settings.json, json_of(settings, result));
  return bench::all_hold(result.floors) ? 0 : 1;
}

}  // namespace

std::function<int()> setup_bench_train(const Arguments& args) {
  const auto settings = std::make_shared<Settings>();
  args.option("--rows", settings->train.rows, "Rows to train, compared with the first").comma_separated();
  args.option("--size", settings->train.size, "340m or 1b").show_default();
  args.flag("--small", settings->train.small, "5.5M parameters, 8 x 256 tokens, instead");
  args.option("--batch", settings->train.batch, "Sequences in a step").show_default().positive();
  args.option("--length", settings->train.length, "Tokens of a sequence").show_default().positive();
  args.option("--precision", settings->train.precision, "Products in f32 or bf16").show_default();
  args.flag("--recompute", settings->train.recompute, "Keep only the inputs of the layers");
  args.option("--rounds", settings->train.rounds, "Rounds measured, with oneDNN's products in between")
      .show_default()
      .positive();
  args.option("--steps", settings->train.steps, "Steps of a row in a round").show_default().positive();
  args.option("--threads", settings->train.threads, "Threads (default: one per core)").not_negative();
  args.option("--json", settings->json, "Write the results to this file (-: to standard output, instead of the table)");
  return [settings] { return run(*settings); };
}

}  // namespace deltanet::cli
