// The fast path against the golden files: outputs, final states and every gradient, in chunk and recurrent form, on
// every SIMD target of this CPU, with one and two threads.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "bounds.h"
#include "deltanet/recurrence.h"
#include "deltanet/runtime.h"
#include "golden_file.h"
#include "problems.h"
#include "recurrence/arrays.h"

namespace deltanet::test {
namespace {

// Runs `body` for every target and number of threads.
template <class Body>
void on_every_target(const Body& body) {
  for (const std::string& target : simd_targets()) {
    set_simd_target(target);
    for (const int threads : {1, 2}) {
      SCOPED_TRACE(target + " with " + std::to_string(threads) + " threads");
      Options options;
      options.threads = threads;
      body(options);
    }
  }
  set_simd_target("");
}

class FastPath : public testing::TestWithParam<std::filesystem::path> {
 protected:
  const GoldenFile golden = read_golden(GetParam());

  void expect_forward(Mode mode) {
    const Expected expected = expected_outputs(golden.spec, golden.inputs);
    on_every_target([&](Options options) {
      options.mode = mode;
      const Arrays outputs = forward_arrays(golden.spec, golden.inputs, options);
      EXPECT_EQ(first_difference(outputs, {golden.outputs, expected.errors}), "");
    });
  }
};

TEST_P(FastPath, ChunkwiseEqualsGolden) { expect_forward(Mode::kChunk); }

TEST_P(FastPath, RecurrentEqualsGolden) { expect_forward(Mode::kRecurrent); }

TEST_P(FastPath, BackwardEqualsGolden) {
  const Expected expected = expected_gradients(golden.spec, golden.inputs, golden.upstream);
  on_every_target([&](const Options& options) {
    const Arrays gradients = backward_arrays(golden.spec, golden.inputs, golden.upstream, options);
    EXPECT_EQ(first_difference(gradients, {golden.gradients, expected.errors}), "");
  });
}

INSTANTIATE_TEST_SUITE_P(Golden, FastPath, testing::ValuesIn(golden_paths()),
                         [](const auto& test) { return golden_name(test.param); });

}  // namespace
}  // namespace deltanet::test
