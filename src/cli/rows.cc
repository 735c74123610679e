// `deltanet rows`: the DGPS table (Decay x Gain x Preconditioner x Solve), and the formulas and options of one row.

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/terminal.h"
#include "deltanet/recurrence.h"
#include "deltanet/rows.h"
#include "recurrence/preconditioners.h"
#include "theory/row_formulas.h"

namespace deltanet::cli {
namespace {

struct Settings {
  std::string name;
  bool json = false;
};

std::vector<std::string> inputs_of(const Spec& spec) {
  std::vector<std::string> names;
  const Shape any{1, 1, 1, 1, 1, 1, 1};
  for (const auto& arg : input_args()) {
    if (!input_shape(spec, arg.name, any).empty()) names.emplace_back(arg.name);
  }
  return names;
}

std::vector<std::string> outputs_of(const Spec& spec) {
  std::vector<std::string> names;
  const Shape any{1, 1, 1, 1, 1, 1, 1};
  for (const auto& arg : output_args()) {
    if (!output_shape(spec, arg.name, any).empty()) names.emplace_back(arg.name);
  }
  return names;
}

// ---- output

nlohmann::json spec_json(const Spec& spec) {
  nlohmann::json json;
  for (const auto& [key, value] : options(spec)) {
    const bool is_text = key == "solve" || key == "decay" || key == "gain" || key == "erase" || key == "key" ||
                         key == "query" || key == "squash" || key == "range" || key == "tying";
    if (is_text)
      json[key] = value;
    else
      json[key] = value == "none" ? nlohmann::json() : nlohmann::json::parse(value);
  }
  return json;
}

nlohmann::json row_json(const Row& row) {
  return {{"name", row.name},
          {"summary", row.summary},
          {"paper", row.paper},
          {"spec", spec_json(row.spec)},
          {"inputs", inputs_of(row.spec)},
          {"outputs", outputs_of(row.spec)}};
}

std::string preconditioner_lines() {
  std::string text;
  for (const Preconditioner& one : preconditioners()) {
    const char* sides = one.on_key && one.on_query ? "" : one.on_key ? " (key)" : " (query)";
    text += fmt::format("           {:<9} {}{}\n", one.name, one.meaning, sides);
  }
  return text;
}

void print_all() {
  fmt::print("A recurrence is Decay x Gain x Preconditioner x Solve. S is [K,V] per head, o = q^T S.\n\n");
  std::vector<std::vector<std::string>> table = {
      {bold("row"), bold("decay"), bold("gain"), bold("key"), bold("query"), bold("solve"), bold("paper"), bold("")}};
  const auto cell = [](const Spec& spec, std::string_view key) {
    const std::string value = theory::row_option(spec, key);
    return value == "none" ? std::string("-") : value;
  };
  for (const Row& row : rows()) {
    const bool dplr = row.spec.solve == Solve::kDplr;
    table.push_back({std::string(row.name), cell(row.spec, "decay"), dplr ? "-" : cell(row.spec, "gain"),
                     cell(row.spec, "key"), cell(row.spec, "query"), cell(row.spec, "solve"), std::string(row.paper),
                     std::string(row.summary)});
  }
  print_table(table);
  fmt::print(
      "\n"
      "decay    alpha = exp(g): const per head, scalar per token and head, diag per token and key dimension\n"
      "gain     with m = k.w, the product of key and write key: one 1, beta, longhorn beta/(1 + beta m), nlms 1/m,\n"
      "         efla (1 - exp(-beta m))/m, inv beta/m, one_plus beta/(1 + m), alpha_beta beta/(alpha + beta m)\n"
      "erase    along key; along a key that is given as k_erase: free; by beta_erase before the decay: own_gain\n"
      "key      what makes the write key w of k, query what makes the read query of q:\n"
      "{}"
      "solve    online S_t = S' + e w (v - k^T S')^T with S' = alpha S; offline S_t = S' + e w v^T;\n"
      "         dplr S_t = S' - b (a^T S) + k v^T\n"
      "\n"
      "`deltanet rows NAME` prints the formulas of one row, as the paper has them, and its options.\n",
      preconditioner_lines());
}

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, ", ")); }

void print_one(const Row& row) {
  fmt::print("{}  {} ({})\n\n", bold(row.name), row.summary, row.paper);
  for (const theory::RowFormula& line : theory::row_formulas(row.spec)) {
    fmt::print("  {}{}{}\n", line.equation, line.note.empty() ? "" : "    ", line.note);
  }
  fmt::print("\n  inputs   {}\n  outputs  {}\n\n", joined(inputs_of(row.spec)), joined(outputs_of(row.spec)));
  std::vector<std::vector<std::string>> table = {{bold("option"), bold("value")}};
  for (const auto& [key, value] : options(row.spec)) table.push_back({key, value});
  print_table(table, {}, 2);
}

int run(const Settings& settings) {
  if (settings.json) {
    nlohmann::json json = nlohmann::json::array();
    if (settings.name.empty()) {
      for (const Row& row : rows()) json.push_back(row_json(row));
    } else {
      json = row_json(find_row(settings.name));
    }
    fmt::print("{}\n", json.dump(2));
  } else if (settings.name.empty()) {
    print_all();
  } else {
    print_one(find_row(settings.name));
  }
  return 0;
}

std::function<int()> setup(const Arguments& args) {
  const auto settings = std::make_shared<Settings>();
  args.option("name", settings->name, "Show the formulas and options of this row");
  args.flag("--json", settings->json, "Print JSON");
  return [settings] { return run(*settings); };
}

const RegisterCommand kRows({"rows", "Print the table of recurrences, or one of them in detail", setup});

}  // namespace
}  // namespace deltanet::cli
