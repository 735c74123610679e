// Regression in context: the figures that the README shows, against float64 loops that share nothing with the library.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "experiments/regression.h"
#include "temporary_directory.h"

namespace deltanet::test {
namespace {

using Vector = std::vector<double>;

// M x = y by Gaussian elimination, for a positive definite M [n,n] and several y, the rows of `right`.
std::vector<Vector> solved(std::vector<Vector> m, std::vector<Vector> right) {
  const std::size_t n = m.size();
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t i = 0; i < n; ++i) {
      if (i == j) continue;
      const double factor = m[i][j] / m[j][j];
      for (std::size_t c = j; c < n; ++c) m[i][c] -= factor * m[j][c];
      for (Vector& y : right) y[i] -= factor * y[j];
    }
  }
  for (Vector& y : right) {
    for (std::size_t j = 0; j < n; ++j) y[j] /= m[j][j];
  }
  return right;
}

// The state after `tokens` tokens of one draw, as V rows of K: Eq. 2 for least squares, Eq. 9 (or 4) token by token.
std::vector<Vector> state_of(const RegressionSolver& solver, const float* k, const float* v, int64_t tokens, int64_t K,
                             int64_t V) {
  std::vector<Vector> S(V, Vector(K));
  if (solver.ridge > 0) {
    std::vector<Vector> gram(K, Vector(K)), cross(V, Vector(K));
    for (int64_t i = 0; i < K; ++i) gram[i][i] = solver.ridge;
    for (int64_t t = 0; t < tokens; ++t, k += K, v += V) {
      for (int64_t j = 0; j < K; ++j) {
        for (int64_t i = 0; i < K; ++i) gram[i][j] += double{k[i]} * k[j];
        for (int64_t i = 0; i < V; ++i) cross[i][j] += double{v[i]} * k[j];
      }
    }
    return solved(gram, cross);
  }
  Vector A(K), w(K);
  for (int64_t t = 0; t < tokens; ++t, k += K, v += V) {
    for (int64_t j = 0; j < K; ++j) {
      A[j] += double{k[j]} * k[j];
      const double r = std::log(A[j] + solver.spec.eps) - solver.center, s = r / (1 + std::fabs(r));
      w[j] = solver.spec.key == Precond::kNone ? k[j] : std::pow(solver.spec.x, -s) * k[j];
    }
    for (int64_t i = 0; i < V; ++i) {
      double error = v[i];
      for (int64_t j = 0; j < K; ++j) error -= S[i][j] * k[j];
      for (int64_t j = 0; j < K; ++j) S[i][j] += error * w[j];
    }
  }
  return S;
}

struct Errors {
  double mean = 0, deviation = 0;  // over the draws
};

Errors oracle(const RegressionOptions& o, const RegressionSolver& solver, const RegressionDraws& draws,
              int64_t tokens) {
  const int64_t K = o.key_dim, V = o.value_dim;
  std::vector<double> errors;
  for (int64_t draw = 0; draw < o.draws; ++draw) {
    const float *k = &draws.keys[draw * o.tokens * K], *v = &draws.values[draw * o.tokens * V];
    const std::vector<Vector> S = state_of(solver, k, v, tokens, K, V);
    double error = 0, size = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t i = 0; i < V; ++i) {
        double missing = v[t * V + i];
        for (int64_t j = 0; j < K; ++j) missing -= S[i][j] * k[t * K + j];
        error += missing * missing;
        size += double{v[t * V + i]} * v[t * V + i];
      }
    }
    errors.push_back(error / size);
  }
  Errors found;
  for (const double error : errors) found.mean += error / static_cast<double>(o.draws);
  for (const double error : errors) found.deviation += std::pow(error - found.mean, 2);
  found.deviation = std::sqrt(found.deviation / static_cast<double>(o.draws - 1));
  return found;
}

const std::vector<RegressionCurve>& curves() {
  static const std::vector<RegressionCurve> all = run_regression({});
  return all;
}

TEST(Regression, ErrorsAreThoseOfFloat64) {
  const RegressionOptions options;
  for (const RegressionCurve& curve : curves()) {
    const RegressionDraws draws = draw_regression(options, curve.rotated);
    for (const std::size_t at : {std::size_t{0}, std::size_t{7}, curve.tokens.size() - 1}) {
      const Errors expected = oracle(options, curve.solver, draws, curve.tokens[at]);
      EXPECT_NEAR(curve.error[at], expected.mean, 1e-3 * expected.mean)
          << curve.solver.name << (curve.rotated ? " rotated " : " aligned ") << curve.tokens[at];
      EXPECT_NEAR(curve.deviation[at], expected.deviation, 1e-2 * expected.deviation)
          << curve.solver.name << (curve.rotated ? " rotated " : " aligned ") << curve.tokens[at];
    }
  }
}

// Measured before this code was written, with other draws: hence the distances, of some standard errors of a mean.
TEST(Regression, FiguresAfter256Tokens) {
  const double expected[] = {0.0133, 0.0088, 0.0074, 0.0050, 0.0006, 0.0140, 0.0147, 0.0117, 0.0111, 0.0006};
  ASSERT_EQ(curves().size(), std::size(expected));
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    const RegressionCurve& curve = curves()[i];
    EXPECT_EQ(curve.rotated, i >= 5);
    EXPECT_EQ(curve.tokens.back(), 256);
    const double standard_error = curve.deviation.back() / std::sqrt(12.0);
    EXPECT_NEAR(curve.error.back(), expected[i], 4 * standard_error) << curve.solver.name << " " << i;
    EXPECT_LT(standard_error, 0.08 * curve.error.back());  // so that the line above says something
  }
}

// The same problem, turned: nothing changes for rows that know no axes. A diagonal preconditioner does.
TEST(Regression, RotationMattersToTheDiagonalOnly) {
  for (std::size_t i = 0; i < 5; ++i) {
    const RegressionCurve &aligned = curves()[i], &rotated = curves()[i + 5];
    ASSERT_EQ(aligned.solver.name, rotated.solver.name);
    const bool diagonal = aligned.solver.spec.key == Precond::kStable;
    for (std::size_t t = 0; t < aligned.tokens.size(); ++t) {
      if (!diagonal) {
        EXPECT_NEAR(rotated.error[t], aligned.error[t], 1e-3 * aligned.error[t]);
      }
    }
    if (diagonal) {
      EXPECT_GT(rotated.error.back(), 1.3 * aligned.error.back());
    }
  }
}

TEST(Regression, WritesALineForEachCurve) {
  const TemporaryDirectory directory;
  RegressionOptions options;
  options.tokens = 16;
  options.draws = 2;
  const std::vector<RegressionCurve> few = run_regression(options);
  const auto path = directory.path() / "regression.jsonl";
  write_regression(options, few, path);
  std::ifstream file(path);
  std::size_t lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    const auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json.at("solver"), few[lines].solver.name);
    EXPECT_EQ(json.at("axes"), few[lines].rotated ? "rotated" : "aligned");
    EXPECT_EQ(json.at("error").get<Vector>(), few[lines].error);
    EXPECT_EQ(json.at("tokens"), (std::vector<int64_t>{8, 16}));
  }
  EXPECT_EQ(lines, few.size());
  options.every = 5;
  EXPECT_NE(error_of([&] { run_regression(options); }).find("multiple of every"), std::string::npos);
}

}  // namespace
}  // namespace deltanet::test
