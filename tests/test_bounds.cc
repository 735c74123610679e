// The bounds that the fast path is held against (bounds.h): they let pass what float32 must be allowed, also where
// results cancel, and notice what is a little more.

#include "bounds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "deltanet/recurrence.h"
#include "problems.h"
#include "recurrence/arrays.h"

namespace deltanet::test {
namespace {

// The value of every entry of `expected`, one of them changed.
Arrays with(const Expected& expected, const std::string& name, std::size_t entry, double value) {
  Arrays arrays = expected.values;
  arrays.at(name).data[entry] = value;
  return arrays;
}

TEST(Bounds, NoticeOneEntry) {
  const Problem problem = problem_of("pgdn", {1, 40, 2, 4, 12, 9, 1}, 5);
  for (const Expected& expected : {expected_outputs(problem.spec, problem.inputs()),
                                   expected_gradients(problem.spec, problem.inputs(), problem.upstream())}) {
    EXPECT_EQ(first_difference(expected.values, expected), "");
    for (const auto& [name, array] : expected.values) {
      const std::size_t entry = array.data.size() / 2;
      const double value = array.data[entry];
      EXPECT_NE(first_difference(with(expected, name, entry, value + 1e-3), expected), "") << name;
      EXPECT_NE(first_difference(with(expected, name, entry, std::numeric_limits<double>::quiet_NaN()), expected), "");
      EXPECT_NE(first_difference(with(expected, name, entry, std::numeric_limits<double>::infinity()), expected), "");
      Arrays fewer = expected.values;
      fewer.erase(name);
      EXPECT_EQ(first_difference(fewer, expected), name + " is missing");
    }
  }
}

// Of the largest error that a bound allows, one part in 32 comes from the rounding of an operation: in outputs of short
// sequences that is below 1e-5 of their size, a few thousand times less than bfloat16 loses.
TEST(Bounds, AreNarrow) {
  for (const char* row : {"linear_attn", "gdn", "kda", "pgdn", "pkda", "dplr"}) {
    Problem problem = problem_of(row, {1, 64, 1, 1, 32, 32, 1}, 6);
    problem.spec.l2norm = true;
    const Expected expected = expected_outputs(problem.spec, problem.inputs());
    double squares = 0, allowed = 0;
    for (const double value : expected.values.at("o").data) squares += value * value;
    for (const double error : expected.errors.at("o").data) allowed += std::pow(kFactor * error, 2);
    EXPECT_LT(std::sqrt(allowed / squares), 1e-5) << row;
  }
}

// Keys and values of one column over 128 tokens: each write takes back the one before.
TEST(Bounds, AllowWhatCancels) {
  for (const char* row : {"nlms", "delta_net", "pla", "retnet", "pdn"}) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const Problem problem = problem_of(row, {1, 128, 1, 1, 1, 1, 1}, seed);
      const Arrays inputs = problem.inputs(), upstream = problem.upstream();
      const Expected outputs = expected_outputs(problem.spec, inputs);
      for (const Mode mode : {Mode::kChunk, Mode::kRecurrent}) {
        EXPECT_EQ(first_difference(forward_arrays(problem.spec, inputs, {.mode = mode}), outputs), "") << problem;
      }
      const Expected gradients = expected_gradients(problem.spec, inputs, upstream);
      EXPECT_EQ(first_difference(backward_arrays(problem.spec, inputs, upstream), gradients), "") << problem;
    }
  }
}

}  // namespace
}  // namespace deltanet::test
