#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "deltanet/rows.h"
#include "eval/result.h"

// Two models on the same examples.

namespace deltanet::eval {

struct Difference {
  double value = 0, stderr_ = 0;  // of the second less the first
  double p = 1;                   // of so large a difference by chance, two-sided
  int64_t examples = 0;
};

// The standard error is that of what each example adds to the difference, so that what both models find easy or hard
// does not count. p: McNemar's exact test where the scores are right or wrong, the normal distribution otherwise.
Difference paired_difference(const Metric& metric, std::span<const ExampleResult> first,
                             std::span<const ExampleResult> second);

// Binomial: of n coins, as few heads or as few tails as `fewer`.
double mcnemar_p(int64_t only_first, int64_t only_second);

// Which models are a row and its preconditioned form, as places in the list; two models always are a pair.
std::vector<std::pair<std::size_t, std::size_t>> pairs_of(std::span<const Spec> specs);

}  // namespace deltanet::eval
