// A million tokens of slow decays and small increments: a state meets one rounding of the decay and one of its own per
// chunk, whatever the sign of those before. README.md of src/recurrence states the bounds.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "deltanet/recurrence.h"
#include "deltanet/runtime.h"
#include "problems.h"
#include "recurrence/arrays.h"
#include "sanitized.h"

namespace deltanet::test {
namespace {

constexpr int64_t kTokens = int64_t{1} << (kSanitized ? 12 : 20), kChunk = 16;
const double kHalfUlp = std::ldexp(1.0, -24);  // of 1 and more; the largest relative rounding error

// A decay is just below 1, where float32 is twice as dense.
constexpr double kRoundingsPerChunk = 1 + 0.5;

void fill(Arrays& inputs, const std::string& name, double value) {
  if (inputs.count(name)) std::fill(inputs[name].data.begin(), inputs[name].data.end(), value);
}

struct Decayed {
  const char* row;
  bool tied;
};

class SlowDecays : public testing::TestWithParam<Decayed> {};

// Nothing is written, so that every state is what it was, times the decay of all tokens.
TEST_P(SlowDecays, AreExactOverAMillionTokens) {
  Problem problem = problem_of(GetParam().row, {1, kTokens, 1, 1, 4, 2, 1}, 31);
  problem.spec.tie_gates |= GetParam().tied;
  Arrays inputs = problem.inputs();
  for (const char* name : {"k", "v", "a", "b", "kk"}) fill(inputs, name, 0);
  // Between two floats, nearly no decay at all, and one that is e^-10 in the end.
  for (const double g : {-1.5 * kHalfUlp, -0.3 * kHalfUlp, -1e-5}) {
    const double log_decay = static_cast<float>(g);
    fill(inputs, "g", log_decay);
    fill(inputs, "g_atk", log_decay);
    const double decay = std::exp(kTokens * log_decay);
    const double bound = kTokens / kChunk * kRoundingsPerChunk * kHalfUlp;
    const Arrays outputs = forward_arrays(problem.spec, inputs, {.threads = 1});
    for (const char* state : {"S", "A", "G"}) {
      const std::string initial = state + std::string("0"), final = state + std::string("_final");
      if (!inputs.count(initial)) continue;
      for (std::size_t i = 0; i < inputs[initial].data.size(); ++i) {
        const double expected = inputs[initial].data[i] * decay;
        ASSERT_NEAR(outputs.at(final).data[i], expected, bound * std::abs(expected)) << final << ", g = " << g;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, SlowDecays,
                         testing::Values(Decayed{"retnet", false}, Decayed{"mamba2", false}, Decayed{"gla", false},
                                         Decayed{"gdn", false}, Decayed{"comba", false}, Decayed{"pgdn", false},
                                         Decayed{"pkda", false}, Decayed{"pkda", true}, Decayed{"pgla", false},
                                         Decayed{"mesa", false}, Decayed{"rwkv7", false}),
                         [](const auto& test) {
                           return std::string(test.param.row) + (test.param.tied ? "_tied" : "");
                         });

// Equal keys: every increment of A is rounded to the same side of it.
TEST(EqualIncrements, AddUpOverAMillionTokens) {
  for (const char* row : {"pdn", "pgdn", "p_mamba2"}) {
    Problem problem = problem_of(row, {1, kTokens, 1, 1, 4, 2, 1}, 32);
    Arrays inputs = problem.inputs();
    // These are among the worst of a hundred sizes of keys.
    const std::vector<double> sizes = {0.801135, 1.68627, 0.157941, 0.05};
    for (std::size_t i = 0; i < inputs["k"].data.size(); ++i) inputs["k"].data[i] = static_cast<float>(sizes[i % 4]);
    const double beta = 0.9f;
    fill(inputs, "beta_atk", beta);
    fill(inputs, "g_atk", 0);
    fill(inputs, "A0", 0);
    for (const Mode mode : {Mode::kChunk, Mode::kRecurrent}) {
      const Array A = forward_arrays(problem.spec, inputs, {.mode = mode, .threads = 1}).at("A_final");
      for (std::size_t i = 0; i < 4; ++i) {
        const double k = inputs["k"].data[i], expected = kTokens * beta * k * k;
        EXPECT_NEAR(A.data[i], expected, kTokens / kChunk * kHalfUlp * expected) << row << ", k = " << k;
      }
    }
  }
}

}  // namespace
}  // namespace deltanet::test
