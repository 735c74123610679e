#include "experiments/regression.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "base/file.h"
#include "base/rng.h"
#include "deltanet/error.h"
#include "deltanet/recurrence.h"

namespace deltanet {
namespace {

using Vectors = std::vector<double>;  // some rows of key_dim numbers

double dot(const double* x, const double* y, int64_t n) { return std::inner_product(x, x + n, y, 0.0); }

void normalize(double* x, int64_t n) {
  const double norm = std::sqrt(dot(x, x, n));
  for (int64_t i = 0; i < n; ++i) x[i] /= norm;
}

Vectors normal_rows(Rng& rng, int64_t rows, int64_t n) {
  Vectors x(rows * n);
  for (double& entry : x) entry = rng.normal();
  return x;
}

// Gram and Schmidt: orthonormal rows whose directions are uniform.
Vectors rotation(Rng& rng, int64_t n) {
  Vectors q = normal_rows(rng, n, n);
  for (int64_t i = 0; i < n; ++i) {
    double* row = &q[i * n];
    for (int64_t j = 0; j < i; ++j) {
      const double part = dot(row, &q[j * n], n);
      for (int64_t c = 0; c < n; ++c) row[c] -= part * q[j * n + c];
    }
    normalize(row, n);
  }
  return q;
}

// x M^T for rows x and a matrix M of rows.
Vectors mapped(const Vectors& x, const Vectors& matrix, int64_t n) {
  const auto rows = static_cast<int64_t>(x.size()) / n, columns = static_cast<int64_t>(matrix.size()) / n;
  Vectors y(rows * columns);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) y[i * columns + j] = dot(&x[i * n], &matrix[j * n], n);
  }
  return y;
}

void check(const RegressionOptions& o) {
  if (o.key_dim < 2 || o.value_dim < 1 || o.draws < 2 || o.every < 1 || o.tokens < 1 || o.tokens % o.every != 0) {
    throw Error(
        "[regression] options: expected key_dim and draws of 2 or more, value_dim of 1 or more, and tokens that "
        "are a multiple of every");
  }
}

// State and memory of the preconditioner of all draws.
struct States {
  std::vector<float> S, A, P;
};

// Reads tokens [begin, begin + every) of all draws on top of the states.
void advance(const RegressionOptions& o, const RegressionSolver& solver, const RegressionDraws& draws, int64_t begin,
             States& states) {
  const int64_t B = o.draws, T = o.every, K = o.key_dim, V = o.value_dim;
  std::vector<float> ones(B * T, 1.0f), center = {static_cast<float>(solver.center)};
  const auto piece = [&](const std::vector<float>& whole, int64_t n) {
    ConstTensor view(whole.data() + begin * n, {B, T, 1, n});
    view.stride[0] = o.tokens * n;
    return view;
  };
  Inputs inputs;
  inputs.q = inputs.k = piece(draws.keys, K);
  inputs.v = piece(draws.values, V);
  Outputs outputs;
  inputs.S0 = outputs.S_final = {states.S.data(), {B, 1, K, V}};
  if (solver.spec.key == Precond::kRls) {
    inputs.P0 = outputs.P_final = {states.P.data(), {B, 1, K, K}};
  } else {
    inputs.beta = {ones.data(), {B, T, 1}};
  }
  if (solver.spec.key == Precond::kStable) {
    inputs.log_atk_scale = {center.data(), {1}};
    inputs.A0 = outputs.A_final = {states.A.data(), {B, 1, K}};
  }
  forward(solver.spec, inputs, outputs);
}

// |S^T k - v|^2 over the first `tokens` keys of a draw, as a share of |v|^2.
double error_of(const RegressionOptions& o, const RegressionDraws& draws, const States& states, int64_t draw,
                int64_t tokens) {
  const int64_t K = o.key_dim, V = o.value_dim;
  const float* S = &states.S[draw * K * V];
  double error = 0, size = 0;
  std::vector<double> missing(V);
  for (int64_t t = 0; t < tokens; ++t) {
    const float* k = &draws.keys[(draw * o.tokens + t) * K];
    const float* v = &draws.values[(draw * o.tokens + t) * V];
    for (int64_t j = 0; j < V; ++j) missing[j] = -double{v[j]};
    for (int64_t i = 0; i < K; ++i) {
      for (int64_t j = 0; j < V; ++j) missing[j] += double{k[i]} * double{S[i * V + j]};
    }
    for (int64_t j = 0; j < V; ++j) error += missing[j] * missing[j], size += double{v[j]} * double{v[j]};
  }
  return error / size;
}

RegressionCurve solve(const RegressionOptions& o, const RegressionSolver& solver, const RegressionDraws& draws) {
  const int64_t B = o.draws, K = o.key_dim;
  RegressionCurve curve;
  curve.solver = solver;
  States states{std::vector<float>(B * K * o.value_dim), std::vector<float>(B * K), std::vector<float>(B * K * K)};
  for (int64_t i = 0; solver.ridge > 0 && i < B * K; ++i) {
    states.P[i * K + i % K] = static_cast<float>(1 / solver.ridge);
  }
  for (int64_t t = 0; t < o.tokens; t += o.every) {
    advance(o, solver, draws, t, states);
    double sum = 0, squares = 0;
    for (int64_t draw = 0; draw < B; ++draw) {
      const double error = error_of(o, draws, states, draw, t + o.every);
      sum += error;
      squares += error * error;
    }
    const auto count = static_cast<double>(B);
    curve.tokens.push_back(t + o.every);
    curve.error.push_back(sum / count);
    curve.deviation.push_back(std::sqrt(std::max(0.0, squares - sum * sum / count) / (count - 1)));
  }
  return curve;
}

}  // namespace

std::vector<RegressionSolver> regression_solvers(const RegressionOptions& options) {
  Spec pdn = find_row("pdn").spec, wide = pdn;
  wide.x = 2;
  // The entries of A_t sum to t for unit keys; this is the logarithm of their mean half-way.
  const double middle = std::log(static_cast<double>(options.tokens) / (2 * static_cast<double>(options.key_dim)));
  return {{"delta rule", find_row("delta_net").spec},
          {"preconditioned", pdn, -0.2},
          {"preconditioned, centered", pdn, middle},
          {"preconditioned, centered, x = 2", wide, middle},
          {"exact least squares", find_row("rls").spec, 0, 0.1}};
}

RegressionDraws draw_regression(const RegressionOptions& o, bool rotated) {
  check(o);
  const int64_t K = o.key_dim;
  RegressionDraws draws;
  for (int64_t draw = 0; draw < o.draws; ++draw) {
    Rng rng(o.seed, static_cast<uint64_t>(draw));
    const Vectors map = normal_rows(rng, o.value_dim, K), turn = rotation(rng, K);
    Vectors keys = normal_rows(rng, o.tokens, K);
    for (int64_t i = 0; i < o.tokens * K; ++i) {
      keys[i] *= std::pow(o.smallest, static_cast<double>(i % K) / static_cast<double>(K - 1));
    }
    for (int64_t t = 0; t < o.tokens; ++t) normalize(&keys[t * K], K);
    const Vectors values = mapped(keys, map, K);  // of the same keys in both cases: only the axes differ
    if (rotated) keys = mapped(keys, turn, K);
    draws.keys.insert(draws.keys.end(), keys.begin(), keys.end());
    draws.values.insert(draws.values.end(), values.begin(), values.end());
  }
  return draws;
}

std::vector<RegressionCurve> run_regression(const RegressionOptions& options) {
  std::vector<RegressionCurve> curves;
  for (const bool rotated : {false, true}) {
    const RegressionDraws draws = draw_regression(options, rotated);
    for (const RegressionSolver& solver : regression_solvers(options)) {
      curves.push_back(solve(options, solver, draws));
      curves.back().rotated = rotated;
    }
  }
  return curves;
}

void write_regression(const RegressionOptions& o, const std::vector<RegressionCurve>& curves,
                      const std::filesystem::path& path) {
  AtomicFile file(path);
  for (const RegressionCurve& curve : curves) {
    const nlohmann::json line = {{"experiment", "regression"},  {"axes", curve.rotated ? "rotated" : "aligned"},
                                 {"solver", curve.solver.name}, {"precond", curve.solver.spec.key != Precond::kNone},
                                 {"x", curve.solver.spec.x},    {"center", curve.solver.center},
                                 {"ridge", curve.solver.ridge}, {"key_dim", o.key_dim},
                                 {"value_dim", o.value_dim},    {"draws", o.draws},
                                 {"smallest", o.smallest},      {"seed", o.seed},
                                 {"tokens", curve.tokens},      {"error", curve.error},
                                 {"deviation", curve.deviation}};
    file.write(line.dump() + "\n");
  }
  file.commit();
}

}  // namespace deltanet
