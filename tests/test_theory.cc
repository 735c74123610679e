// The statements of `deltanet verify` would notice if they were wrong: the algebra that judges them is right, a broken
// computation does not pass, and what they measure is measured (two things that are compared are never the same thing).

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <numbers>
#include <random>

#include "deltanet/rows.h"
#include "theory/linalg.h"
#include "theory/statements.h"

namespace deltanet::theory {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Check, HoldsOrNot) {
  const auto holds = [](double measured, const char* relation, double bound) {
    return Check{"", "", measured, relation, bound}.holds();
  };
  EXPECT_TRUE(holds(1, "<=", 1) && holds(1, ">=", 1) && holds(1, "=", 1) && holds(0, "=", 0));
  EXPECT_FALSE(holds(1, "<", 1) || holds(1, ">", 1));
  EXPECT_TRUE(holds(0.9, "<", 1) && holds(1.1, ">", 1));
  EXPECT_FALSE(holds(1.1, "<=", 1) || holds(0.9, ">=", 1) || holds(1 + 1e-12, "=", 1) || holds(1e-300, "=", 0));
  for (const char* relation : {"<=", ">=", "<", ">", "="}) EXPECT_FALSE(holds(kNan, relation, 1)) << relation;
  EXPECT_EQ(larger(1, 2), 2);
  EXPECT_EQ(smaller(1, 2), 1);
  EXPECT_TRUE(std::isnan(larger(larger(1, kNan), 2)) && std::isnan(smaller(smaller(1, kNan), 2)));
}

std::vector<std::complex<double>> sorted(std::vector<std::complex<double>> values) {
  std::sort(values.begin(), values.end(),
            [](const auto& a, const auto& b) { return std::pair(a.real(), a.imag()) < std::pair(b.real(), b.imag()); });
  return values;
}

void expect_eigenvalues(const Matrix& matrix, const std::vector<std::complex<double>>& expected, double bound) {
  const auto found = sorted(eigenvalues(matrix)), want = sorted(expected);
  ASSERT_EQ(found.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_LE(std::abs(found[i] - want[i]), bound) << i;
}

TEST(Eigenvalues, OfKnownMatrices) {
  expect_eigenvalues({1, 1, {-3}}, {-3}, 0);
  expect_eigenvalues({3, 3, {1, 2, 3, 0, 4, 5, 0, 0, 6}}, {1, 4, 6}, 1e-14);
  expect_eigenvalues({2, 2, {0, -1, 1, 0}}, {{0, 1}, {0, -1}}, 1e-14);
  expect_eigenvalues({3, 3, {0, 0, 1, 1, 0, 0, 0, 1, 0}},
                     {1, std::polar(1.0, 2 * std::numbers::pi / 3), std::polar(1.0, -2 * std::numbers::pi / 3)}, 1e-14);
  expect_eigenvalues({3, 3, {2, 0, 0, 0, 2, 0, 0, 0, 2}}, {2, 2, 2}, 0);
  // The companion matrix of (x-1)(x-2)(x-3)(x-4).
  expect_eigenvalues({4, 4, {10, -35, 50, -24, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0}}, {1, 2, 3, 4}, 1e-11);
}

// The residual of the best map is orthogonal to all columns.
TEST(LeastSquares, LeavesWhatIsOrthogonal) {
  std::mt19937_64 rng(1);
  std::normal_distribution<double> normal;
  Matrix a(9, 4), b(9, 3);
  for (double& x : a.data) x = normal(rng);
  for (double& x : b.data) x = normal(rng);
  const Matrix map = least_squares(a, b);
  ASSERT_EQ(map.rows, 4u);
  ASSERT_EQ(map.columns, 3u);
  double largest = 0;
  for (std::size_t j = 0; j < 3; ++j) {
    for (std::size_t c = 0; c < 4; ++c) {
      double along = 0;
      for (std::size_t i = 0; i < 9; ++i) {
        double left = b(i, j);
        for (std::size_t k = 0; k < 4; ++k) left -= a(i, k) * map(k, j);
        along += left * a(i, c);
        largest = std::max(largest, std::fabs(left));
      }
      EXPECT_NEAR(along, 0, 1e-13);
    }
  }
  EXPECT_GT(largest, 0.1);
}

const Check& check_with(const Section& section, const std::string& part) {
  for (const Check& check : section.checks) {
    if (check.statement.find(part) != std::string::npos) return check;
  }
  throw std::runtime_error("no statement with " + part);
}

class Statements : public testing::TestWithParam<int> {
 protected:
  Section of(Theme theme) const {
    Section section = theme({.quick = true, .seed = static_cast<uint64_t>(GetParam()), .threads = 1});
    for (const Check& check : section.checks) {
      EXPECT_TRUE(check.holds()) << check.statement << ": " << check.measured;
      // A distance of two computations has rounding errors; without any, something is compared with itself.
      if (check.relation == "<=") {
        EXPECT_GT(check.measured, 0) << check.statement;
      }
    }
    return section;
  }
};

TEST_P(Statements, OfLeastSquares) {
  const Section section = of(check_least_squares);
  EXPECT_EQ(section.checks.size(), 12u);
  EXPECT_EQ(check_with(section, "diagonal PLA").measured, 0.5);
}

TEST_P(Statements, OfRegression) {
  const Section section = of(check_regression);
  EXPECT_EQ(section.checks.size(), 5u);
  // The worst of some tens of standardized means: neither nothing nor much.
  for (const char* part : {"linear attention errs", "DeltaNet errs"}) {
    EXPECT_GT(check_with(section, part).measured, 0.3) << part;
  }
  // With a small gain most of the map is still missing after 3 d tokens: (1 - 0.4375/16)^48 = 0.26 of it on average.
  EXPECT_GT(check_with(section, "never exceeds").measured, 0.26);
  EXPECT_GT(check_with(section, "over linear attention's").measured, 0.4);
}

TEST_P(Statements, OfEigenvalues) {
  const Section section = of(check_eigenvalues);
  EXPECT_EQ(section.checks.size(), 6u);
  EXPECT_NEAR(check_with(section, "leaves the disk").measured, 1.2, 1e-12);  // 1 - 2.2
  const double radius = check_with(section, "stays in the unit disk").measured;
  EXPECT_TRUE(radius > 0.9 && radius <= 1) << radius;
  const double negative = check_with(section, "negative eigenvalue").measured;
  EXPECT_TRUE(negative >= -1 && negative < 0) << negative;
}

TEST_P(Statements, OfProximalObjectives) {
  const Section section = of(check_proximal);
  EXPECT_EQ(section.checks.size(), 13u);
  // |S|^2 in the norm of 1/P grows by 1/P at least, and P is 2 at most where it is not that of a ridge.
  const double increase = check_with(section, "smallest increase").measured;
  EXPECT_TRUE(increase > 0.05 && increase < 2) << increase;
}

TEST_P(Statements, OfChunkwiseForms) {
  const Section section = of(check_chunkwise);
  EXPECT_EQ(section.checks.size(), rows().size());
  for (const Check& check : section.checks) {
    ASSERT_EQ(check.parts.size(), section.parts.size());
    for (std::size_t i = 0; i < check.parts.size(); ++i) {
      EXPECT_GT(check.parts[i], 1e-9) << check.statement << " " << section.parts[i];  // float32 rounds
      EXPECT_LE(check.parts[i], check.measured) << check.statement << " " << section.parts[i];
    }
  }
}

TEST_P(Statements, OfDplr) {
  const Section section = of(check_dplr);
  EXPECT_EQ(section.checks.size(), 10u);
  for (const Check& check : section.checks) {
    if (check.statement.find("float32") == std::string::npos) continue;
    EXPECT_GT(check.measured, 1e-9) << check.statement;  // float32 rounds
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Statements, testing::Values(1, 2));

}  // namespace
}  // namespace deltanet::theory
