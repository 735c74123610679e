// `deltanet verify`: runs every theme, prints what was claimed and what was measured, and fails where they differ.

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "deltanet/deltanet.h"
#include "theory/statements.h"

namespace deltanet::cli {
namespace {

struct Settings {
  theory::CheckOptions options;
  std::string json_file;
};

void print_section(const theory::Section& section) {
  fmt::print("{}\n  {}\n\n", bold(section.title), section.measures);
  std::vector<std::string> header = {"statement", "paper"};
  std::vector<std::size_t> numbers;
  for (const std::string& part : section.parts) header.push_back(part);
  if (section.parts.empty()) header.push_back("measured");
  for (std::size_t i = 2; i < header.size(); ++i) numbers.push_back(i);
  header.insert(header.end(), {"must be", ""});

  std::vector<std::vector<std::string>> table = {header};
  for (const theory::Check& check : section.checks) {
    std::vector<std::string> line = {check.statement, check.paper};
    for (const double part : check.parts) line.push_back(number_text(part));
    if (section.parts.empty()) line.push_back(number_text(check.measured));
    line.push_back(fmt::format("{:<2} {:.4g}", check.relation, check.bound));
    line.push_back(verdict(check.holds()));
    table.push_back(line);
  }
  print_table(table, numbers, 2);
  fmt::print("\n");
}

nlohmann::json to_json(const theory::Section& section) {
  nlohmann::json checks = nlohmann::json::array();
  for (const theory::Check& check : section.checks) {
    nlohmann::json json = {{"statement", check.statement}, {"paper", check.paper}, {"measured", check.measured},
                           {"relation", check.relation},   {"bound", check.bound}, {"pass", check.holds()}};
    for (std::size_t i = 0; i < check.parts.size(); ++i) json["parts"][section.parts[i]] = check.parts[i];
    checks.push_back(json);
  }
  return {{"title", section.title}, {"measures", section.measures}, {"checks", checks}};
}

int run(const Settings& settings) {
  std::optional<AtomicFile> json_file;
  if (!settings.json_file.empty()) json_file.emplace(settings.json_file);  // a bad path should not cost the whole run
  const Stopwatch clock;
  nlohmann::json report = {{"version", version()},
                           {"simd", simd_target()},
                           {"seed", settings.options.seed},
                           {"quick", settings.options.quick},
                           {"sections", nlohmann::json::array()}};
  int holding = 0, total = 0;
  for (const theory::Theme theme : theory::kThemes) {
    const theory::Section section = theme(settings.options);
    print_section(section);
    std::fflush(stdout);
    report["sections"].push_back(to_json(section));
    for (const theory::Check& check : section.checks) holding += check.holds();
    total += static_cast<int>(section.checks.size());
  }
  const double seconds = clock.seconds();
  const std::string summary = fmt::format("{} of {} statements hold", holding, total);
  fmt::print("{} ({:.1f} s, SIMD {}, seed {})\n", holding == total ? green(summary) : red(summary), seconds,
             simd_target(), settings.options.seed);
  if (json_file) {
    report["holding"] = holding;
    report["total"] = total;
    report["seconds"] = seconds;
    json_file->write(report.dump(2) + "\n");
    json_file->commit();
  }
  return holding == total ? 0 : 1;
}

std::function<int()> setup(const Arguments& args) {
  const auto settings = std::make_shared<Settings>();
  args.flag("--quick", settings->options.quick, "Fewer random draws and shorter sequences");
  args.option("--seed", settings->options.seed, "Seed of the random draws").show_default();
  args.option("--threads", settings->options.threads, "Threads of the fast path (0: all)").show_default();
  args.option("--json", settings->json_file, "Also write the results to this file");
  return [settings] { return run(*settings); };
}

const RegisterCommand kVerify({"verify", "Check the paper's statements, and every row against its definition", setup});

}  // namespace
}  // namespace deltanet::cli
