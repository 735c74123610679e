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

namespace deltanet::cli {
namespace {

struct Settings {
  std::string name;
  bool json = false;
};

std::string option_of(const Spec& spec, std::string_view key) {
  for (const auto& [name, value] : options(spec)) {
    if (name == key) return value;
  }
  return "";
}

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

// ---- the formulas of one row, one line each

struct Formula {
  std::string equation, note;
};

std::string alpha_of(const Spec& spec) {
  switch (spec.decay) {
    case Decay::kNone:
      return "";
    case Decay::kConst:
      return "alpha = exp(g), one per head";
    case Decay::kScalar:
      return "alpha = exp(g), one per token and head";
    case Decay::kDiag:
      return "alpha = exp(g), one per token and key dimension";
  }
  return "";
}

void add_moment(const Spec& spec, std::vector<Formula>& lines) {
  const std::string decay = !spec.tie_gates ? "exp(g_atk) " : spec.decay == Decay::kNone ? "" : "alpha ";
  const std::string gain = !spec.tie_gates ? "beta_atk " : spec.gain == Gain::kOne ? "" : "beta ";
  lines.push_back({fmt::format("A_t = {}A_(t-1) + {}k*k", decay, gain), "diagonal second moment of the keys"});
}

void add_preconditioner(const Spec& spec, std::vector<Formula>& lines) {
  switch (spec.precond) {
    case Precond::kNone:
      break;
    case Precond::kIdentity:
      lines.push_back({"w = k", "a write key of its own, equal to k"});
      break;
    case Precond::kAtkStable: {
      add_moment(spec, lines);
      lines.push_back({fmt::format("r = log(A_t + {}) - log_atk_scale", option_of(spec, "eps")), ""});
      lines.push_back({spec.squash == Squash::kTanh ? "s = tanh(r)" : "s = r/(1 + |r|)", "squash"});
      const std::string x = option_of(spec, "x");
      if (spec.range == Range::kSym)
        lines.push_back({fmt::format("B = {}^(-s)", x), fmt::format("in [1/{0}, {0}]", x)});
      if (spec.range == Range::kAmplify)
        lines.push_back({fmt::format("B = {}^((1-s)/2)", x), fmt::format("in [1, {}]", x)});
      if (spec.range == Range::kDampen) {
        lines.push_back({fmt::format("B = {}^(-(1+s)/2)", x), fmt::format("in [1/{}, 1]", x)});
      }
      const char* divided = spec.norm == Norm::kInv ? " / (k.Bk)" : spec.norm == Norm::kOnePlus ? " / (1 + k.Bk)" : "";
      const char* guard = spec.norm == Norm::kInv ? "; 0 where k = 0" : "";
      lines.push_back({fmt::format("w = B*k{}", divided), std::string("write key") + guard});
      break;
    }
    case Precond::kAtkUnstable:
      add_moment(spec, lines);
      lines.push_back({"p = 1/(A_(t-1) + ridge)", ""});
      lines.push_back({"w = p*k / (1 + k.(p*k))", "write key, Sherman-Morrison"});
      break;
    case Precond::kAtkRaw:
      add_moment(spec, lines);
      lines.push_back({"w = k / (A_(t-1) + ridge)", "write key"});
      break;
    case Precond::kRls:
      lines.push_back({"w = Pk / (1 + k.Pk)", "write key; P_0 = I/ridge"});
      lines.push_back({"P_t = P - (Pk)(Pk)^T / (1 + k.Pk)", "inverse Gram of the keys"});
      break;
    case Precond::kAtq:
      add_moment(spec, lines);
      break;
    case Precond::kMesa:
      lines.push_back({fmt::format("G_t = {}G_(t-1) + {}k k^T", spec.decay == Decay::kNone ? "" : "alpha ",
                                   spec.gain == Gain::kOne ? "" : "beta "),
                       "Gram of the keys"});
      break;
  }
}

std::string gain_formula(const Spec& spec) {
  if (spec.norm == Norm::kAlphaBeta) return "beta/(alpha + beta k.Bk)";
  switch (spec.gain) {
    case Gain::kOne:
    case Gain::kBeta:
    case Gain::kComba:
      break;
    case Gain::kLonghorn:
      return spec.precond == Precond::kNone ? "beta/(1 + beta k.k)" : "beta/(1 + beta k.w)";
    case Gain::kNlms:
      return "1/(k.k)";
    case Gain::kEfla:
      return "(1 - exp(-beta k.k))/(k.k)";
  }
  return "";
}

void add_state(const Spec& spec, std::vector<Formula>& lines) {
  std::string before = "S_(t-1)", decayed = before;
  if (spec.decay != Decay::kNone) {
    decayed = "S'";
    lines.push_back({"S' = alpha S_(t-1)", alpha_of(spec)});
  }
  if (spec.solve == Solve::kDplr) {
    const char* note = "a and b are inputs";
    if (spec.tying == Tying::kRwkv7) note = "a = kk, b = eta*kk";
    if (spec.tying == Tying::kAEqB) note = "b = a";
    if (spec.tying == Tying::kBEqK) note = "b = k";
    lines.push_back({fmt::format("S_t = {} - b (a^T {}) + k v^T", decayed, before), note});
    return;
  }
  if (spec.gain == Gain::kComba) {
    lines.push_back(
        {fmt::format("S_t = {} + k (beta v - beta_erase k^T {})^T", decayed, before), "erases before the decay"});
    return;
  }
  const bool key_side = spec.precond == Precond::kAtkStable || spec.precond == Precond::kAtkUnstable ||
                        spec.precond == Precond::kAtkRaw || spec.precond == Precond::kRls ||
                        spec.precond == Precond::kIdentity;
  std::string gain = spec.gain == Gain::kOne ? "" : "beta ";
  if (const std::string formula = gain_formula(spec); !formula.empty()) {
    const char* guard = spec.gain == Gain::kNlms   ? "; 0 where k = 0"
                        : spec.gain == Gain::kEfla ? "; beta where k = 0"
                                                   : "";
    lines.push_back({"e = " + formula, std::string("gain") + guard});
    gain = "e ";
  }
  const char* key = key_side ? "w" : "k";
  if (spec.solve == Solve::kOffline) {
    lines.push_back({fmt::format("S_t = {} + {}{} v^T", decayed, gain, key), ""});
  } else {
    lines.push_back({fmt::format("S_t = {0} + {1}{2} (v - k^T {0})^T", decayed, gain, key), ""});
  }
}

std::vector<Formula> formulas(const Spec& spec) {
  std::vector<Formula> lines;
  add_preconditioner(spec, lines);
  add_state(spec, lines);
  std::string query = spec.gain == Gain::kComba ? "(q - d k)" : "q";
  if (spec.precond == Precond::kAtq) query = "(q/(A_t + ridge))";
  if (spec.precond == Precond::kMesa) query = "((G_t + diag(ridge))^-1 q)";
  const std::string scale = spec.scale ? (*spec.scale == 1 ? "" : option_of(spec, "scale") + " ") : "K^(-1/2) ";
  lines.push_back({fmt::format("o = {}{}^T S_t", scale, query), spec.l2norm ? "q and k are L2-normalised first" : ""});
  return lines;
}

// ---- output

nlohmann::json spec_json(const Spec& spec) {
  nlohmann::json json;
  for (const auto& [key, value] : options(spec)) {
    const bool is_text = key == "solve" || key == "decay" || key == "gain" || key == "precond" || key == "squash" ||
                         key == "range" || key == "norm" || key == "tying";
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

void print_all() {
  fmt::print("A recurrence is Decay x Gain x Preconditioner x Solve. S is [K,V] per head, o = q^T S.\n\n");
  std::vector<std::vector<std::string>> table = {
      {bold("row"), bold("decay"), bold("gain"), bold("precond"), bold("solve"), bold("paper"), bold("")}};
  const auto cell = [](const Spec& spec, std::string_view key) {
    const std::string value = option_of(spec, key);
    return value == "none" ? std::string("-") : value;
  };
  for (const Row& row : rows()) {
    const bool dplr = row.spec.solve == Solve::kDplr;
    table.push_back({std::string(row.name), cell(row.spec, "decay"), dplr ? "-" : cell(row.spec, "gain"),
                     cell(row.spec, "precond"), cell(row.spec, "solve"), std::string(row.paper),
                     std::string(row.summary)});
  }
  print_table(table);
  fmt::print(
      "\n"
      "decay    alpha = exp(g): const per head, scalar per token and head, diag per token and key dimension\n"
      "gain     one 1, beta, longhorn beta/(1 + beta k.Pk), nlms 1/(k.k), efla (1 - exp(-beta k.k))/(k.k),\n"
      "         comba beta to write and beta_erase to erase\n"
      "precond  on the write key: atk_stable (Eq. 9), atk_unstable (Sherman-Morrison), atk_raw, rls (exact);\n"
      "         on the query: atq (diagonal), mesa (exact)\n"
      "solve    online S_t = S' + e w (v - k^T S')^T with S' = alpha S; offline S_t = S' + e w v^T;\n"
      "         dplr S_t = S' - b (a^T S) + k v^T\n"
      "\n"
      "`deltanet rows NAME` prints the formulas and options of one row.\n");
}

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, ", ")); }

void print_one(const Row& row) {
  fmt::print("{}  {} ({})\n\n", bold(row.name), row.summary, row.paper);
  std::vector<std::vector<std::string>> table;
  for (const Formula& line : formulas(row.spec)) table.push_back({line.equation, line.note});
  print_table(table, {}, 2);
  fmt::print("\n  inputs   {}\n  outputs  {}\n\n", joined(inputs_of(row.spec)), joined(outputs_of(row.spec)));
  table = {{bold("option"), bold("value")}};
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
