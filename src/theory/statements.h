#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

// The statements of the paper, measured: what `deltanet verify` prints. One file per theme.

namespace deltanet::theory {

// One measured statement.
struct Check {
  std::string statement;  // what is claimed, in one line
  std::string paper;      // where
  double measured = 0;
  std::string relation;  // "<=", ">=", "<", ">" or "="
  double bound = 0;
  std::vector<double> parts = {};  // numbers of which `measured` is the worst, one per name in Section::parts

  bool holds() const;
};

// The larger and the smaller of two numbers, where NaN wins: a broken computation must not pass.
inline double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }
inline double smaller(double a, double b) { return std::isnan(a) || a < b ? a : b; }

struct Section {
  std::string title;
  std::string measures;  // what the numbers are
  std::vector<Check> checks;
  std::vector<std::string> parts = {};
};

struct CheckOptions {
  bool quick = false;
  uint64_t seed = 1;
  int threads = 0;
};

using Theme = Section (*)(const CheckOptions&);

Section check_least_squares(const CheckOptions& options);  // Theorem 3.1, and where diagonal preconditioners differ
Section check_regression(const CheckOptions& options);     // Theorem 3.2
Section check_eigenvalues(const CheckOptions& options);    // Lemmas E.1, E.2, E.3
Section check_proximal(const CheckOptions& options);       // the objectives of App. G
Section check_chunkwise(const CheckOptions& options);      // every row: chunkwise = recurrent = reference
Section check_dplr(const CheckOptions& options);           // App. D.2: rows as DPLR, preconditioners as free keys

inline constexpr Theme kThemes[] = {check_least_squares, check_regression, check_eigenvalues,
                                    check_proximal,      check_chunkwise,  check_dplr};

}  // namespace deltanet::theory
