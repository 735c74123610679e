// Factors of products: a layer that writes bfloat16 writes what rounding its float32 result would give, and products
// of factors that were given rounded have the bits of those that round themselves.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

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
  static constexpr int64_t kHeads = 3;
  const int64_t rows = GetParam().first, n = GetParam().second;
  std::vector<float> a = floats_of(rows * n, 1), b = floats_of(rows * n, 2), c = floats_of(rows * n, 3);
  const std::vector<float> weight = floats_of(n, 4);

  // Whatever else a layer writes, from NaN, is the same with a narrow result.
  std::vector<float> written(std::size_t count) const { return std::vector<float>(count, kNan); }
  void expect_same_written(const std::vector<float>& now, std::vector<float>& before) const {
    for (std::size_t i = 0; i < now.size(); ++i) ASSERT_FALSE(std::isnan(now[i])) << i;
    if (!before.empty()) {
      EXPECT_EQ(now, before);
    }
    before = now;
  }

 private:
  static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
};

TEST_P(Factors, RmsNorm) {
  std::vector<float> first_rstd, first_sum;
  expect_same_rounded(rows, n, [&](const Factor& y, int threads) {
    std::vector<float> rstd = written(static_cast<std::size_t>(rows));
    nn::rms_norm_forward(rows, n, 1e-5f, {a.data(), n}, weight.data(), y, rstd.data(), threads);
    expect_same_written(rstd, first_rstd);
  });
  expect_same_rounded(rows, n, [&](const Factor& y, int threads) {
    nn::rms_norm_apply(rows, n, {b.data(), n}, first_rstd.data(), weight.data(), y, threads);
  });
  first_rstd.clear();
  expect_same_rounded(rows, n, [&](const Factor& y, int threads) {
    std::vector<float> rstd = written(static_cast<std::size_t>(rows)), sum = written(a.size());
    nn::add_rms_norm_forward(rows, n, 1e-5f, {a.data(), n}, {b.data(), n}, weight.data(), {sum.data(), n}, y,
                             rstd.data(), threads);
    expect_same_written(rstd, first_rstd);
    expect_same_written(sum, first_sum);
  });
}

TEST_P(Factors, GatedNorm) {
  const int64_t width = kHeads * n;
  const nn::GatedNorm norm{kHeads, n, 1e-5f, nn::GateActivation::kSilu, weight.data()};
  const std::vector<float> o = floats_of(rows * width, 5), gate = floats_of(rows * width, 6);
  std::vector<float> first_rstd;
  expect_same_rounded(rows, width, [&](const Factor& y, int threads) {
    std::vector<float> rstd = written(static_cast<std::size_t>(rows * kHeads));
    nn::gated_norm_forward(norm, rows, {o.data(), width}, {gate.data(), width}, y, rstd.data(), threads);
    expect_same_written(rstd, first_rstd);
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

// Rows longer than what is rounded at a time, and enough of them for several threads.
INSTANTIATE_TEST_SUITE_P(Sizes, Factors,
                         testing::Values(std::pair<int64_t, int64_t>{1, 7}, std::pair<int64_t, int64_t>{1200, 33},
                                         std::pair<int64_t, int64_t>{20, 5000}));

TEST(FactorFor, FollowsTheProduct) {
  constexpr int64_t kMany = 256, kColumns = 48;
  std::vector<float> memory(kMany * nn::wide_ld(kColumns));
  const auto of = [&](WeightType type, int64_t rows) { return nn::factor_for(type, rows, memory.data(), kColumns); };
  EXPECT_EQ(of(WeightType::kFloat32, kMany).wide, memory.data());
  EXPECT_EQ(of(WeightType::kInt8, kMany).wide, memory.data());
  EXPECT_EQ(of(WeightType::kBfloat16, 1).wide, memory.data());  // decoding rounds nothing
  EXPECT_EQ(of(WeightType::kBfloat16, kMany).narrow != nullptr, nn::rounds_activations(WeightType::kBfloat16));
  for (int64_t rows = 2; rows <= kMany; ++rows) {  // few rows, then many
    EXPECT_LE(of(WeightType::kBfloat16, rows - 1).narrow, of(WeightType::kBfloat16, rows).narrow) << rows;
  }
  for (int64_t n = 1; n < 100; ++n) EXPECT_LE(2 * nn::narrow_ld(n), 4 * n) << n;
}

TEST(WideRows, SpreadOverTheCacheSets) {
  for (const int64_t n : {1, 63}) EXPECT_EQ(nn::wide_ld(n), n);  // short rows stay together
  for (const int64_t n : {64, 256, 1000, 1024, 1028, 8192, 32000}) {
    EXPECT_GE(nn::wide_ld(n), n);
    EXPECT_LE(nn::wide_ld(n), n + 31);
    EXPECT_EQ(nn::wide_ld(n) % 32, 16) << "an odd number of cache lines";
    EXPECT_GE(nn::wide_ld(n), nn::wide_ld(n - 1)) << "memory for the widest matrix is enough for all";
  }
}

}  // namespace
}  // namespace deltanet::test
