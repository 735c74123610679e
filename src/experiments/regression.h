#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "deltanet/rows.h"

// Regression in context, without training: what preconditioning does, and when. A recurrence reads keys k_t and values
// v_t = W k_t, and its state is a map from keys to values (Sec. 2.3 of the paper). How far is it from W after t tokens,
// on the keys that it has seen?
//
//   error(t) = sum_(i<=t) |S_t^T k_i - v_i|^2 / sum_(i<=t) |v_i|^2         (the loss of Eq. 1, 1 for S = 0)

namespace deltanet {

struct RegressionOptions {
  int64_t key_dim = 32, value_dim = 32, tokens = 256;
  int64_t draws = 12;     // of keys, map and rotation; errors are means over them
  int64_t every = 8;      // tokens between two points of a curve; divides `tokens`
  double smallest = 0.1;  // scale of the last axis of the keys; that of the first is 1, those between are geometric
  uint64_t seed = 0;
};

// A way to solve: a row of the table with gain 1, and its inputs besides keys and values.
struct RegressionSolver {
  std::string name;
  Spec spec;
  double center = 0;  // log_atk_scale of a preconditioned row
  double ridge = 0;   // of a row with the exact Gram
};

// The delta rule, pdn as its models start, the same with its center in the middle of log A_t, with x = 2 besides, and
// exact least squares.
std::vector<RegressionSolver> regression_solvers(const RegressionOptions& options);

// Keys either vary along the axes of key space or along axes that are turned by a random rotation: the same problem to
// the delta rule and to exact least squares, but not to a diagonal preconditioner.
struct RegressionCurve {
  RegressionSolver solver;
  bool rotated = false;
  std::vector<int64_t> tokens;
  std::vector<double> error, deviation;  // mean and standard deviation over the draws
};

// Solvers with aligned keys, then all with rotated ones. The same on every machine, up to rounding in float32.
std::vector<RegressionCurve> run_regression(const RegressionOptions& options);

// The draws alone: unit keys [draws, tokens, key_dim] and values [draws, tokens, value_dim].
struct RegressionDraws {
  std::vector<float> keys, values;
};
RegressionDraws draw_regression(const RegressionOptions& options, bool rotated);

// A line of JSON for each curve. The file is written anew.
void write_regression(const RegressionOptions& options, const std::vector<RegressionCurve>& curves,
                      const std::filesystem::path& path);

}  // namespace deltanet
