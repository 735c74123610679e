// Factors of products: a layer that writes bfloat16 writes what rounding its float32 result would give, and products
// of factors that were given rounded have the bits of those that round themselves.

#include <gtest/gtest.h>

#include <functional>

#include "layers.h"
#include "nn/gated_norm.h"
#include "nn/linear.h"
#include "nn/rms_norm.h"
#include "nn/swiglu.h"
#include "simd/kernels.h"

namespace deltanet::test {
namespace {

using nn::Factor;

constexpr uint16_t kUntouched = 0x7fc1;  // a NaN that no layer writes

std::vector<float> floats_of(int64_t count, uint32_t seed) { return floats(random_values(count, seed)); }

// A result [rows, n] of a layer, with a gap behind each row.
struct Result {
  int64_t rows, n, ld;
  std::vector<float> wide;
  std::vector<uint16_t> narrow;

  Result(int64_t r, int64_t columns)
      : rows(r),
        n(columns),
        ld(nn::narrow_ld(columns)),
        wide(static_cast<std::size_t>(r * ld)),
        narrow(wide.size(), kUntouched) {}

  Factor as_wide() { return {wide.data(), ld}; }
  Factor as_narrow() { return {narrow.data(), ld}; }

  void expect_rounded() const {
    std::vector<uint16_t> rounded(static_cast<std::size_t>(n));
    for (int64_t r = 0; r < rows; ++r) {
      simd::kernels().convert.f32_to_bf16(n, wide.data() + r * ld, rounded.data());
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(narrow[r * ld + i], rounded[i]) << "row " << r << ", column " << i;
      for (int64_t i = n; i < ld; ++i) ASSERT_EQ(narrow[r * ld + i], kUntouched) << "gap of row " << r;
    }
  }
};

using LayerCall = std::function<void(const Factor& y, int threads)>;

void expect_same_rounded(int64_t rows, int64_t n, const LayerCall& layer) {
  for (const int threads : {1, 2}) {
    Result y(rows, n);
    layer(y.as_wide(), threads);
    layer(y.as_narrow(), threads);
    y.expect_rounded();
  }
}

class Factors : public testing::TestWithParam<std::pair<int64_t, int64_t>> {
 protected:
  const int64_t rows = GetParam().first, n = GetParam().second;
  std::vector<float> a = floats_of(rows * n, 1), b = floats_of(rows * n, 2), c = floats_of(rows * n, 3);
  const std::vector<float> weight = floats_of(n, 4);
  std::vector<float> rstd = std::vector<float>(static_cast<std::size_t>(rows));
};

TEST_P(Factors, RmsNorm) {
  expect_same_rounded(rows, n, [&](const Factor& y, int threads) {
    nn::rms_norm_forward(rows, n, 1e-5f, {a.data(), n}, weight.data(), y, rstd.data(), threads);
  });
  expect_same_rounded(rows, n, [&](const Factor& y, int threads) {
    nn::rms_norm_apply(rows, n, {b.data(), n}, rstd.data(), weight.data(), y, threads);
  });
  std::vector<float> sum(a.size());
  expect_same_rounded(rows, n, [&](const Factor& y, int threads) {
    nn::add_rms_norm_forward(rows, n, 1e-5f, {a.data(), n}, {b.data(), n}, weight.data(), {sum.data(), n}, y,
                             rstd.data(), threads);
    for (std::size_t i = 0; i < sum.size(); ++i) ASSERT_EQ(sum[i], a[i] + b[i]);
  });
}

TEST_P(Factors, GatedNorm) {
  const nn::GatedNorm norm{1, n, 1e-5f, nn::GateActivation::kSilu, weight.data()};
  expect_same_rounded(rows, n, [&](const Factor& y, int threads) {
    nn::gated_norm_forward(norm, rows, {a.data(), n}, {b.data(), n}, y, rstd.data(), threads);
  });
}

TEST_P(Factors, Swiglu) {
  expect_same_rounded(rows, n, [&](const Factor& y, int threads) {
    nn::swiglu_forward(rows, n, {a.data(), n}, {b.data(), n}, y, threads);
  });
  for (const int threads : {1, 2}) {
    Result both(rows, 2 * n), y(rows, n);
    const auto run = [&](const Factor& gradients, const Factor& again) {
      nn::swiglu_backward(rows, n, {a.data(), n}, {b.data(), n}, {c.data(), n}, gradients, gradients.from(0, n), again,
                          threads);
    };
    run(both.as_wide(), y.as_wide());
    run(both.as_narrow(), y.as_narrow());
    both.expect_rounded();
    y.expect_rounded();
  }
}

TEST_P(Factors, Copy) {
  expect_same_rounded(rows, n, [&](const Factor& y, int threads) {
    nn::copy_rows(rows, n, {a.data(), n}, y, threads);
  });
}

// 5000 columns: a row is more than what is rounded at a time.
INSTANTIATE_TEST_SUITE_P(Sizes, Factors,
                         testing::Values(std::pair<int64_t, int64_t>{1, 7}, std::pair<int64_t, int64_t>{70, 33},
                                         std::pair<int64_t, int64_t>{3, 5000}));

TEST(FactorFor, FollowsTheProduct) {
  constexpr int64_t kMany = 256, kColumns = 48;
  std::vector<float> memory(kMany * kColumns);
  const auto of = [&](WeightType type, int64_t rows) { return nn::factor_for(type, rows, memory.data(), kColumns); };
  EXPECT_EQ(of(WeightType::kFloat32, kMany).wide, memory.data());
  EXPECT_EQ(of(WeightType::kInt8, kMany).wide, memory.data());
  EXPECT_EQ(of(WeightType::kBfloat16, 1).wide, memory.data());  // decoding rounds nothing
  EXPECT_EQ(of(WeightType::kBfloat16, kMany).narrow != nullptr, nn::rounds_activations(WeightType::kBfloat16));
  for (int64_t n = 1; n < 100; ++n) EXPECT_LE(2 * nn::narrow_ld(n), 4 * n) << n;
}

}  // namespace
}  // namespace deltanet::test
