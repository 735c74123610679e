#include "cli/quickstart/regression.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/terminal.h"
#include "experiments/regression.h"

namespace deltanet::cli {
namespace {

std::string bar(double share) {
  constexpr double kWidth = 20;
  std::string text;
  for (int i = 0; i < std::max(1, static_cast<int>(kWidth * share + 0.5)); ++i) text += "█";
  return text;
}

Color color_of(const RegressionSolver& solver) {
  if (solver.ridge > 0) return Color::kGray;
  return solver.spec.key == Precond::kNone ? Color::kBlue : Color::kVermilion;
}

// Solvers by tokens, and how much error is left at the end beside that of the first, which is the delta rule.
void print_errors(const RegressionCurve* first, const RegressionCurve* last, const std::string& title) {
  std::vector<std::vector<std::string>> table = {{bold(title)}};
  std::vector<std::size_t> numbers;
  for (int64_t tokens = first->tokens.back() / 16; tokens <= first->tokens.back(); tokens *= 2) {
    numbers.push_back(table.front().size());
    table.front().push_back(std::to_string(tokens));
  }
  table.front().push_back("tokens");
  for (const RegressionCurve* curve = first; curve != last; ++curve) {
    std::vector<std::string> line = {"  " + curve->solver.name};
    for (std::size_t i = 0; i < curve->tokens.size(); ++i) {
      const std::string text = std::to_string(curve->tokens[i]);
      if (std::find(table.front().begin(), table.front().end(), text) == table.front().end()) continue;
      line.push_back(fmt::format("{:.4f}", curve->error[i]));
    }
    line.push_back(colored(color_of(curve->solver), bar(curve->error.back() / first->error.back())));
    table.push_back(line);
  }
  print_table(table, numbers, 2);
}

}  // namespace

void show_regression(const std::filesystem::path& path) {
  const RegressionOptions options;
  const std::vector<RegressionCurve> curves = run_regression(options);
  write_regression(options, curves, path);
  fmt::print(
      "{}: nothing is trained, and the figures are the same everywhere\n\n"
      "  The state of a recurrence is a map that it fits, token by token, to what it reads: here to keys k of {} "
      "numbers\n"
      "  and values v = W k. How wrong is it about what it has read? The keys vary {:.0f} times more along their "
      "first\n"
      "  axis than along their last. Squared error as a share of |v|^2, mean of {} draws:\n\n",
      bold("Regression in context"), options.key_dim, 1 / options.smallest, options.draws);
  const RegressionCurve *aligned = curves.data(), *end = aligned + curves.size();
  const RegressionCurve* rotated = std::find_if(aligned, end, [](const RegressionCurve& one) { return one.rotated; });
  print_errors(aligned, rotated, "keys along the axes");
  fmt::print("\n");
  print_errors(rotated, end, "the same keys, rotated");
  fmt::print(
      "\n  The delta rule corrects the map along the key that it reads, and learns slowly what keys seldom show. The\n"
      "  preconditioner weights each axis by how much it has seen of it: that helps where the keys' scales differ "
      "along\n"
      "  the axes, and little or not at all where they differ along other directions. \"centered\" has its learned "
      "center\n"
      "  (log_atk_scale) at the middle of log A_t instead of where models start, x = 2 may change scales more than "
      "1.5.\n"
      "  Exact least squares (row rls) is the end of the scale: it keeps a matrix of K x K for it.\n");
}

}  // namespace deltanet::cli
