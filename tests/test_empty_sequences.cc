// Sequences without tokens, alone, in a batch or between others, and batches without sequences: states pass through,
// and so do their gradients, in every form of every row.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bounds.h"
#include "deltanet/error.h"
#include "deltanet/recurrence.h"
#include "problems.h"
#include "recurrence/arrays.h"

namespace deltanet::test {
namespace {

std::vector<std::string> row_names() {
  std::vector<std::string> names;
  for (const Row& row : rows()) names.emplace_back(row.name);
  return names;
}

std::vector<Problem> problems(const std::string& row) {
  const int64_t U = allows_grouped_heads(find_row(row).spec) ? 4 : 2;
  std::vector<Problem> all = {problem_of(row, {1, 20, 2, U, 5, 3, 6}, 1), problem_of(row, {1, 0, 2, U, 5, 3, 2}, 2),
                              problem_of(row, {2, 0, 2, U, 5, 3, 2}, 3), problem_of(row, {0, 6, 2, U, 5, 3, 0}, 4)};
  all[0].cu_seqlens = {0, 0, 0, 7, 7, 20, 20};
  all[1].cu_seqlens = {0, 0, 0};
  const std::size_t given = all.size();
  for (std::size_t i = 0; i < given; ++i) {
    all.push_back(all[i]);
    all.back().omitted = {"S0", "A0", "P0", "G0"};
  }
  return all;
}

class EmptySequences : public testing::TestWithParam<std::string> {};

TEST_P(EmptySequences, KeepTheirStates) {
  for (const Problem& problem : problems(GetParam())) {
    const Arrays inputs = problem.inputs();
    const Expected expected = expected_outputs(problem.spec, inputs);
    for (const Mode mode : {Mode::kChunk, Mode::kRecurrent}) {
      for (const int threads : {1, 16}) {
        const Arrays outputs = forward_arrays(problem.spec, inputs, {.mode = mode, .threads = threads});
        EXPECT_EQ(first_difference(outputs, expected), "") << problem;
      }
    }
  }
}

TEST_P(EmptySequences, HandTheGradientsOfTheirStatesOn) {
  for (const Problem& problem : problems(GetParam())) {
    const Arrays inputs = problem.inputs(), upstream = problem.upstream();
    const Expected expected = expected_gradients(problem.spec, inputs, upstream);
    for (const int threads : {1, 16}) {
      const Arrays gradients = backward_arrays(problem.spec, inputs, upstream, {.threads = threads});
      EXPECT_EQ(first_difference(gradients, expected), "") << problem;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, EmptySequences, testing::ValuesIn(row_names()),
                         [](const auto& row) { return row.param; });

// What has no elements needs no memory.
TEST(EmptyBatch, MayBeGivenWithoutMemory) {
  Inputs inputs;
  inputs.q = inputs.k = {nullptr, {0, 5, 2, 4}};
  inputs.v = {nullptr, {0, 5, 2, 3}};
  const Spec& spec = find_row("linear_attn").spec;
  EXPECT_EQ(infer_shape(spec, inputs).T, 5);
  EXPECT_NO_THROW(forward(spec, inputs, {}));
  inputs.q = {nullptr, {1, 5, 2, 4}};
  EXPECT_THROW(forward(spec, inputs, {}), Error);
}

}  // namespace
}  // namespace deltanet::test
