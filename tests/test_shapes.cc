// The shapes that models use and the odd ones around them: the three forms and the gradients agree at head sizes 16 to
// 256, K != V, lengths around multiples of the chunk, several heads and grouped value heads.

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "bounds.h"
#include "deltanet/recurrence.h"
#include "problems.h"
#include "recurrence/arrays.h"

namespace deltanet::test {
namespace {

std::string name_of(const Shape& s) {
  const auto part = [](const char* axis, int64_t extent) { return axis + std::to_string(extent) + "_"; };
  return part("B", s.B) + part("T", s.T) + part("H", s.H) + part("U", s.U) + part("K", s.K) + part("V", s.V);
}

class Shapes : public testing::TestWithParam<std::tuple<Shape, std::string>> {
 protected:
  Problem problem() const {
    auto [shape, row] = GetParam();
    if (!allows_grouped_heads(find_row(row).spec)) shape.U = shape.H;
    Problem made = problem_of(row, shape, 11);
    made.spec.l2norm = true;
    return made;
  }
  static Options options_of(Mode mode) { return {.mode = mode, .threads = 2, .check_values = false}; }
};

std::string test_name(const testing::TestParamInfo<std::tuple<Shape, std::string>>& test) {
  return name_of(std::get<0>(test.param)) + std::get<1>(test.param);
}

class ForwardShapes : public Shapes {};

TEST_P(ForwardShapes, ChunkEqualsRecurrentEqualsReference) {
  const Problem made = problem();
  const Arrays inputs = made.inputs();
  const Expected expected = expected_outputs(made.spec, inputs);
  for (const Mode mode : {Mode::kChunk, Mode::kRecurrent}) {
    EXPECT_EQ(first_difference(forward_arrays(made.spec, inputs, options_of(mode)), expected), "");
  }
}

class BackwardShapes : public Shapes {};

TEST_P(BackwardShapes, GradientsEqualReference) {
  const Problem made = problem();
  const Arrays inputs = made.inputs(), upstream = made.upstream();
  const Expected expected = expected_gradients(made.spec, inputs, upstream);
  const Arrays gradients = backward_arrays(made.spec, inputs, upstream, options_of(Mode::kChunk));
  EXPECT_EQ(first_difference(gradients, expected), "");
  if (made.spec.solve == Solve::kOffline) return;

  KeptWrites writes(made.shape);
  Options options = options_of(Mode::kChunk);
  options.writes = writes.view();
  forward_arrays(made.spec, inputs, options);
  EXPECT_TRUE(writes.complete());
  EXPECT_EQ(first_difference(backward_arrays(made.spec, inputs, upstream, options), expected), "");
}

const auto kRows =
    testing::Values("delta_net", "gdn", "kda", "pdn", "pgdn", "pkda", "linear_attn", "retnet", "mamba2", "gla",
                    "p_mamba2", "comba", "efla", "pgdn_unstable", "pgdn_tied", "rls", "mesa", "dplr", "rwkv7");

//                             B  T   H  U  K    V    N
constexpr Shape kForward[] = {{2, 63, 2, 2, 60, 60, 2},  {1, 65, 1, 2, 120, 128, 1}, {1, 17, 1, 2, 128, 256, 1},
                              {1, 33, 1, 1, 256, 96, 1}, {3, 1, 2, 2, 64, 33, 3},    {1, 257, 1, 3, 16, 100, 1},
                              {1, 20, 1, 1, 72, 24, 1}};
INSTANTIATE_TEST_SUITE_P(Rows, ForwardShapes, testing::Combine(testing::ValuesIn(kForward), kRows), test_name);

constexpr Shape kBackward[] = {{2, 63, 1, 1, 60, 24, 2},
                               {1, 65, 1, 2, 24, 120, 1},
                               {1, 100, 2, 2, 17, 16, 1},
                               {1, 270, 1, 1, 17, 16, 1},
                               {1, 40, 1, 1, 100, 16, 1}};
INSTANTIATE_TEST_SUITE_P(Rows, BackwardShapes, testing::Combine(testing::ValuesIn(kBackward), kRows), test_name);

constexpr Shape kLong[] = {{1, 4097, 1, 1, 128, 32, 1}};
INSTANTIATE_TEST_SUITE_P(Long, ForwardShapes,
                         testing::Combine(testing::ValuesIn(kLong), testing::Values("gdn", "pgdn", "kda", "pkda")),
                         test_name);

}  // namespace
}  // namespace deltanet::test
