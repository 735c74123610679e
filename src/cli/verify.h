#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

// `deltanet verify`: the statements of the paper, measured. Private to the command; one verify_*.cc per theme.

namespace deltanet::cli {

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

struct VerifyOptions {
  bool quick = false;
  uint64_t seed = 1;
  int threads = 0;
};

Section verify_least_squares(
    const VerifyOptions& options);                         // Theorem 3.1, and its failure for diagonal preconditioners
Section verify_regression(const VerifyOptions& options);   // Theorem 3.2
Section verify_eigenvalues(const VerifyOptions& options);  // Lemmas E.1, E.2, E.3
Section verify_proximal(const VerifyOptions& options);     // the objectives of App. G
Section verify_chunkwise(const VerifyOptions& options);    // every row: chunkwise = recurrent = reference

}  // namespace deltanet::cli
