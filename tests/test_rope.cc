// Rotary embeddings against float64, and back again.

#include "nn/attention/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "attention_samples.h"
#include "deltanet/error.h"

namespace deltanet::test {
namespace {

using nn::Rope;

class RopeShapes : public testing::TestWithParam<int64_t> {
 protected:
  void TearDown() override { set_simd_target(""); }
};

TEST_P(RopeShapes, RotatesByPositionAndBackAgain) {
  const int64_t D = GetParam(), heads = 3, ld = heads * D + 5, half = D / 2;
  // The last two lie across and behind the end of the longest table.
  const std::vector<int64_t> offsets{0, 70, 70, 73, 78, 80}, starts{0, 9, 10000, 32766, 1000000};
  std::vector<float> x(static_cast<std::size_t>(80 * ld));
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (float& value : x) value = normal(random);
  std::vector<double> expected(x.begin(), x.end());
  for (std::size_t n = 0; n < starts.size(); ++n) {
    for (int64_t row = offsets[n]; row < offsets[n + 1]; ++row) {
      for (int64_t i = 0; i < heads * half; ++i) {
        const auto position = static_cast<double>(starts[n] + row - offsets[n]);
        const double angle = position * std::pow(5e5, -2.0 * static_cast<double>(i % half) / static_cast<double>(D));
        const auto low = static_cast<std::size_t>(row * ld + i / half * D + i % half);
        const auto high = low + static_cast<std::size_t>(half);
        expected[low] = x[low] * std::cos(angle) - x[high] * std::sin(angle);
        expected[high] = x[high] * std::cos(angle) + x[low] * std::sin(angle);
      }
    }
  }
  for (const std::string& target : simd_targets()) {
    SCOPED_TRACE(target);
    set_simd_target(target);
    Rope rope(D, 5e5);
    std::vector<float> y = x, one = x;
    rope.forward(std::vector<int64_t>{0, 70}, {}, heads, one.data(), ld, 1);  // a short table, which then grows
    rope.forward(offsets, starts, heads, y.data(), ld, 2);
    EXPECT_GE(rope.planned(), 10003);
    EXPECT_LT(rope.planned(), 1000000);
    EXPECT_LE(difference(y, expected), 3e-7);
    EXPECT_TRUE(same_bits(one.data(), y.data(), 70 * ld));
    rope.backward(offsets, starts, heads, y.data(), ld, 2);
    EXPECT_LE(difference(y, x), 3e-7);
  }
}

INSTANTIATE_TEST_SUITE_P(HeadSizes, RopeShapes, testing::Values(2, 16, 60, 64, 128),
                         [](const auto& test) { return "D" + std::to_string(test.param); });

TEST(Rope, OddHeadsAndLowThetasAreErrors) {
  EXPECT_THROW(Rope(7, 1e4), Error);
  EXPECT_THROW(Rope(0, 1e4), Error);
  EXPECT_THROW(Rope(8, 0.0), Error);
}

}  // namespace
}  // namespace deltanet::test
