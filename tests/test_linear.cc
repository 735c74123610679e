// The products of linear layers against float64: every weight type, few and many rows, odd sizes, row distances larger
// than the rows, one and two threads, every SIMD target. Gaps between rows hold NaN.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/arena.h"
#include "base/parallel.h"
#include "deltanet/error.h"
#include "nn/linear.h"
#include "nn/matmul/matmul.h"
#include "nn/matmul/onednn.h"
#include "nn/quantize.h"
#include "simd/bandwidth.h"
#include "simd/kernels.h"

namespace deltanet::nn {
namespace {

constexpr double kRound = 0x1p-24;     // relative error of rounding to float
constexpr double kRoundBf16 = 0x1p-8;  // to bfloat16: eight significant bits, so half of 2^-7
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kGap = 3;           // floats between rows
constexpr int64_t kNeverRounded = 6;  // rows for which activations of all types stay as they are

const bool kPoisoned = (Arena::set_poison(true), true);

// Rows with NaN between them.
struct Matrix {
  int64_t rows, columns, ld;
  std::vector<float> data;

  Matrix(int64_t r, int64_t c, uint32_t seed) : rows(r), columns(c), ld(c + kGap) {
    data.assign(static_cast<std::size_t>(rows * ld), kNaN);
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) at(i, j) = normal(random);
    }
  }
  float& at(int64_t i, int64_t j) { return data[static_cast<std::size_t>(i * ld + j)]; }
  double operator()(int64_t i, int64_t j) const { return data[static_cast<std::size_t>(i * ld + j)]; }
  double largest(int64_t i) const {
    double found = 0;
    for (int64_t j = 0; j < columns; ++j) found = std::max(found, std::fabs((*this)(i, j)));
    return found;
  }
  bool gaps_untouched() const {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = columns; j < ld; ++j) {
        if (!std::isnan((*this)(i, j))) return false;
      }
    }
    return true;
  }
};

// A weight of any type, and what its stored numbers mean.
struct Stored {
  int64_t out, in;
  std::vector<float> wide, scale;
  std::vector<uint16_t> narrow;
  std::vector<int8_t> levels;
  Weight weight;

  Stored(WeightType type, int64_t out_size, int64_t in_size, uint32_t seed) : out(out_size), in(in_size) {
    const std::size_t count = static_cast<std::size_t>(out * in);
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < count; ++i) wide.push_back(normal(random));
    weight = {type, wide.data(), nullptr, out, in};
    if (type == WeightType::kBfloat16) {
      narrow.resize(count);
      to_bfloat16(wide.data(), out, in, narrow.data(), 2);
      simd::kernels().convert.bf16_to_f32(out * in, narrow.data(), wide.data());
      weight.data = narrow.data();
    }
    if (type == WeightType::kInt8) {
      levels.resize(count);
      scale.resize(static_cast<std::size_t>(out));
      to_int8(wide.data(), out, in, levels.data(), scale.data(), 2);
      for (std::size_t i = 0; i < count; ++i) wide[i] = scale[i / static_cast<std::size_t>(in)] * levels[i];
      weight.data = levels.data();
      weight.scale = scale.data();
    }
  }
  double operator()(int64_t o, int64_t i) const { return wide[static_cast<std::size_t>(o * in + i)]; }
};

// One sum of products in float64 with what its size says about rounding.
struct Sum {
  double value = 0, absolute = 0, weights = 0;
  void add(double activation, double weight) {
    value += activation * weight;
    absolute += std::fabs(activation * weight);
    weights += std::fabs(weight);
  }
  // Each of the products and additions rounds; the sums so far are at most `absolute`.
  double bound(int64_t terms, double start) const {
    return kRound * (static_cast<double>(terms) + 4) * (absolute + std::fabs(start)) + 1e-30;
  }
};

struct Options {
  bool add, bias;
  int threads;
};

std::vector<Options> all_options() {
  std::vector<Options> all;
  for (const bool add : {false, true}) {
    for (const bool bias : {false, true}) {
      for (const int threads : {1, 2}) all.push_back({add, bias, threads});
    }
  }
  return all;
}

std::string name_of(WeightType type) {
  return type == WeightType::kFloat32 ? "f32" : type == WeightType::kBfloat16 ? "bf16" : "int8";
}

void check_forward(WeightType type, int64_t rows, int64_t out, int64_t in, const Options& options) {
  const Stored w(type, out, in, 1);
  const Matrix x(rows, in, 2), bias(1, out, 3), before(rows, out, 4);
  Matrix y = before;
  linear({x.data.data(), x.ld}, rows, w.weight, options.bias ? bias.data.data() : nullptr, y.data.data(), y.ld,
         options.add, options.threads);
  ASSERT_TRUE(y.gaps_untouched());
  for (int64_t r = 0; r < rows; ++r) {
    // int8: each activation is off by at most half a level.
    const double half_level = x.largest(r) / 254 * 1.0001;
    for (int64_t o = 0; o < out; ++o) {
      Sum sum;
      for (int64_t i = 0; i < in; ++i) sum.add(x(r, i), w(o, i));
      const double start = (options.add ? before(r, o) : 0) + (options.bias ? bias(0, o) : 0);
      double bound =
          sum.bound(in, std::fabs(options.add ? before(r, o) : 0) + std::fabs(options.bias ? bias(0, o) : 0));
      if (rows > kNeverRounded && type == WeightType::kBfloat16) bound += kRoundBf16 * sum.absolute;
      if (rows > kNeverRounded && type == WeightType::kInt8) bound += half_level * sum.weights;
      ASSERT_NEAR(y(r, o), sum.value + start, bound)
          << name_of(type) << " rows " << rows << " out " << out << " in " << in << " at " << r << "," << o;
    }
  }
}

void check_backward_input(WeightType type, int64_t rows, int64_t out, int64_t in, const Options& options) {
  const Stored w(type, out, in, 5);
  const Matrix dy(rows, out, 6), before(rows, in, 7);
  Matrix dx = before;
  linear_backward_input({dy.data.data(), dy.ld}, rows, w.weight, dx.data.data(), dx.ld, options.add, options.threads);
  ASSERT_TRUE(dx.gaps_untouched());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < in; ++i) {
      Sum sum;
      for (int64_t o = 0; o < out; ++o) sum.add(dy(r, o), w(o, i));
      const double start = options.add ? before(r, i) : 0;
      const double rounding = type == WeightType::kBfloat16 ? kRoundBf16 * sum.absolute : 0;
      ASSERT_NEAR(dx(r, i), sum.value + start, sum.bound(out, start) + rounding)
          << name_of(type) << " rows " << rows << " out " << out << " in " << in << " at " << r << "," << i;
    }
  }
}

void check_backward_weight(WeightType type, int64_t rows, int64_t out, int64_t in, const Options& options) {
  const Matrix dy(rows, out, 8), x(rows, in, 9), bias_before(1, out, 10);
  const double before = options.add ? 0.25 : 0;
  std::vector<float> dw(static_cast<std::size_t>(out * in), options.add ? 0.25f : std::nanf(""));
  Matrix dbias = bias_before;
  linear_backward_weight({dy.data.data(), dy.ld}, {x.data.data(), x.ld}, rows, type, dw.data(), options.add, out, in,
                         options.bias ? dbias.data.data() : nullptr, options.threads);
  ASSERT_TRUE(dbias.gaps_untouched());
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t i = 0; i < in; ++i) {
      Sum sum;
      for (int64_t r = 0; r < rows; ++r) sum.add(dy(r, o), x(r, i));
      const double rounding = type == WeightType::kBfloat16 ? (2 + kRoundBf16) * kRoundBf16 * sum.absolute : 0;
      ASSERT_NEAR(dw[static_cast<std::size_t>(o * in + i)], before + sum.value, sum.bound(rows, before) + rounding)
          << name_of(type) << " rows " << rows << " out " << out << " in " << in << " at " << o << "," << i;
    }
    Sum sum;
    for (int64_t r = 0; r < rows && options.bias; ++r) sum.add(dy(r, o), 1);
    ASSERT_NEAR(dbias(0, o), bias_before(0, o) + sum.value, sum.bound(rows, bias_before(0, o)));
  }
}

using Check = void (*)(WeightType, int64_t rows, int64_t out, int64_t in, const Options&);

// Every pair of sizes; the options change from one to the next, so that all combinations occur.
void over_sizes(Check check, WeightType type, int64_t rows) {
  const std::vector<Options> options = all_options();
  std::size_t next = static_cast<std::size_t>(rows);
  for (const int64_t out : {1, 5, 60, 100, 257}) {
    for (const int64_t in : {1, 5, 60, 100, 257}) {
      ASSERT_NO_FATAL_FAILURE(check(type, rows, out, in, options[next++ % options.size()]));
    }
  }
}

class Linear : public testing::TestWithParam<std::tuple<WeightType, int64_t>> {};

std::string test_name(const testing::TestParamInfo<std::tuple<WeightType, int64_t>>& test) {
  return name_of(std::get<0>(test.param)) + "_rows" + std::to_string(std::get<1>(test.param));
}

TEST_P(Linear, ForwardEqualsReference) { over_sizes(check_forward, std::get<0>(GetParam()), std::get<1>(GetParam())); }

class LinearGradients : public Linear {};

TEST_P(LinearGradients, InputEqualsReference) {
  over_sizes(check_backward_input, std::get<0>(GetParam()), std::get<1>(GetParam()));
}

TEST_P(LinearGradients, WeightEqualsReference) {
  over_sizes(check_backward_weight, std::get<0>(GetParam()), std::get<1>(GetParam()));
}

const auto kRows = testing::Values(1, 2, 3, 7, 16, 17, 33, 129, 300);
const auto kFloats = testing::Values(WeightType::kFloat32, WeightType::kBfloat16);
const auto kTypes = testing::Values(WeightType::kFloat32, WeightType::kBfloat16, WeightType::kInt8);
INSTANTIATE_TEST_SUITE_P(Sizes, Linear, testing::Combine(kTypes, kRows), test_name);
INSTANTIATE_TEST_SUITE_P(Sizes, LinearGradients, testing::Combine(kFloats, kRows), test_name);

// Large enough for several blocks of widened weights and several blocks of sums.
TEST(LinearBlocks, ManyOutputsEqualReference) {
  for (const WeightType type : {WeightType::kBfloat16, WeightType::kInt8}) {
    ASSERT_NO_FATAL_FAILURE(check_forward(type, 40, 110000, 11, {true, true, 2}));
  }
  ASSERT_NO_FATAL_FAILURE(check_backward_input(WeightType::kBfloat16, 20, 110000, 11, {true, true, 2}));
}

// Every path in several parts, whose last one is short: of rows where a factor is rounded, of int8 sums, of widened
// weights. Rows of inputs and results are further apart than they are long.
class LinearParts : public testing::Test {
 protected:
  void SetUp() override { part_sizes() = {.narrowed = 1000, .sums = 1000, .widened = 1000}; }
  void TearDown() override { part_sizes() = {}; }
};

TEST_F(LinearParts, ManyPartsEqualReference) {
  for (const Options& options : all_options()) {
    for (const auto& [out, in] : {std::pair<int64_t, int64_t>{50, 33}, {33, 50}, {2000, 3}}) {  // the last: row by row
      for (const WeightType type : {WeightType::kFloat32, WeightType::kBfloat16, WeightType::kInt8}) {
        ASSERT_NO_FATAL_FAILURE(check_forward(type, 75, out, in, options));
        if (type == WeightType::kInt8) continue;
        ASSERT_NO_FATAL_FAILURE(check_backward_input(type, 75, out, in, options));
        ASSERT_NO_FATAL_FAILURE(check_backward_weight(type, 75, out, in, options));
      }
    }
  }
}

TEST_F(LinearParts, BothGradientsAtOnce) {
  const int64_t rows = 75, out = 50, in = 33;
  const Stored w(WeightType::kBfloat16, out, in, 1);
  const Matrix dy(rows, out, 2), x(rows, in, 3);
  for (const bool add : {false, true}) {
    Matrix dx(rows, in, 4), expected_dx(rows, in, 5), dbias(1, out, 6);
    const Matrix bias_before = dbias;
    std::vector<float> dw(static_cast<std::size_t>(out * in), add ? 0.25f : std::nanf(""));
    linear_backward({dy.data.data(), dy.ld}, {x.data.data(), x.ld}, rows, w.weight, dx.data.data(), dx.ld, dw.data(),
                    add, dbias.data.data(), 2);
    linear_backward_input({dy.data.data(), dy.ld}, rows, w.weight, expected_dx.data.data(), expected_dx.ld, false, 2);
    ASSERT_TRUE(dx.gaps_untouched() && dbias.gaps_untouched());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < in; ++i) ASSERT_EQ(dx(r, i), expected_dx(r, i)) << r << "," << i;
    }
    for (int64_t o = 0; o < out; ++o) {
      Sum bias;
      for (int64_t r = 0; r < rows; ++r) bias.add(dy(r, o), 1);
      ASSERT_NEAR(dbias(0, o), bias_before(0, o) + bias.value, bias.bound(rows, bias_before(0, o)));
      for (int64_t i = 0; i < in; ++i) {
        Sum sum;
        for (int64_t r = 0; r < rows; ++r) sum.add(dy(r, o), x(r, i));
        const double rounding = (2 + kRoundBf16) * kRoundBf16 * sum.absolute;
        ASSERT_NEAR(dw[static_cast<std::size_t>(o * in + i)], (add ? 0.25 : 0) + sum.value,
                    sum.bound(rows, 0.25) + rounding);
      }
    }
  }
}

// Shares without rows, and shares of one.
TEST(LinearShares, MoreThreadsThanRowsEqualReference) {
  for (const WeightType type : {WeightType::kFloat32, WeightType::kBfloat16, WeightType::kInt8}) {
    for (const int64_t out : {1, 3, 7, 9, 17}) {
      ASSERT_NO_FATAL_FAILURE(check_forward(type, 1, out, 100000, {true, true, 8}));
      ASSERT_NO_FATAL_FAILURE(check_forward(type, 2, out, 100000, {false, false, 8}));
    }
  }
}

class Targets : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(simd::select_target(GetParam())); }
  void TearDown() override { simd::select_target(""); }
};

TEST_P(Targets, FewRowsEqualReference) {
  const std::vector<Options> options = all_options();
  std::size_t next = 0;
  for (const WeightType type : {WeightType::kFloat32, WeightType::kBfloat16, WeightType::kInt8}) {
    for (int64_t rows = 1; rows <= 8; ++rows) {
      for (const int64_t in : {1, 7, 15, 16, 17, 31, 64, 65, 100, 257}) {
        for (const int64_t out : {1, 3, 4, 9, 1000}) {
          ASSERT_NO_FATAL_FAILURE(check_forward(type, rows, out, in, options[next++ % options.size()]));
        }
      }
    }
  }
}

TEST_P(Targets, ManyRowsEqualReference) {
  for (const WeightType type : {WeightType::kFloat32, WeightType::kBfloat16, WeightType::kInt8}) {
    ASSERT_NO_FATAL_FAILURE(check_forward(type, 50, 100, 67, {true, true, 2}));
  }
  for (const WeightType type : {WeightType::kFloat32, WeightType::kBfloat16}) {
    ASSERT_NO_FATAL_FAILURE(check_backward_input(type, 50, 100, 67, {true, true, 2}));
    ASSERT_NO_FATAL_FAILURE(check_backward_weight(type, 77, 83, 67, {true, true, 2}));
  }
}

// Several blocks of columns and of the depth, the last ones short, and depths that are odd.
TEST_P(Targets, BlocksEqualReference) {
  for (const WeightType type : {WeightType::kFloat32, WeightType::kBfloat16}) {
    ASSERT_NO_FATAL_FAILURE(check_forward(type, 19, 600, 1087, {true, true, 2}));
    ASSERT_NO_FATAL_FAILURE(check_forward(type, 13, 290, 2100, {false, true, 1}));
    ASSERT_NO_FATAL_FAILURE(check_backward_input(type, 19, 1089, 601, {true, true, 2}));
    ASSERT_NO_FATAL_FAILURE(check_backward_input(type, 13, 2100, 290, {false, true, 1}));
    ASSERT_NO_FATAL_FAILURE(check_backward_weight(type, 1087, 205, 601, {true, true, 2}));
    ASSERT_NO_FATAL_FAILURE(check_backward_weight(type, 2100, 111, 290, {false, true, 1}));
  }
}

// Neither the other rows nor the threads change what is added in which order.
TEST_P(Targets, ManyRowsKeepTheirBits) {
  constexpr int64_t kOut = 601, kIn = 1300, kAll = 71, kFirst = 5, kSome = 37;
  for (const WeightType type : {WeightType::kFloat32, WeightType::kBfloat16}) {
    if (type == WeightType::kBfloat16 && !(rounds_activations(type) && simd::kernels().panels.pairs)) continue;
    if (onednn_has_matrix_units(type)) continue;
    const Stored w(type, kOut, kIn, 1);
    const Matrix x(kAll, kIn, 2);
    Matrix together(kAll, kOut, 3), some(kSome, kOut, 4);
    linear({x.data.data(), x.ld}, kAll, w.weight, nullptr, together.data.data(), together.ld, false, 3);
    linear({x.data.data() + kFirst * x.ld, x.ld}, kSome, w.weight, nullptr, some.data.data(), some.ld, false, 1);
    for (int64_t r = 0; r < kSome; ++r) {
      for (int64_t o = 0; o < kOut; ++o) ASSERT_EQ(some(r, o), together(kFirst + r, o)) << name_of(type);
    }
  }
}

// Sums of small integers are exact in every type: a term that is lost, or read from a gap, which holds NaN, shows.
// Depths end in whole and half pairs, in one block and in several; of a depth of zero the bias remains.
TEST_P(Targets, EveryTermCountsOnce) {
  constexpr int64_t m = 107, n = 300, kGapOfA = 3, kGapOfB = 1;
  for (const WeightType type : {WeightType::kFloat32, WeightType::kBfloat16}) {
    const bool narrow = type == WeightType::kBfloat16;
    if (narrow && !rounds_activations(type)) continue;
    for (const int64_t depth : {0, 1, 127, 1023, 1024, 1025, 2047, 2101}) {
      // Both factors as they are stored forward, for the gradient of the input and for that of the weights.
      for (const auto& [a_transposed, transposed] : {std::pair{false, true}, {false, false}, {true, false}}) {
        if ((narrow || a_transposed) && depth == 0) continue;  // oneDNN leaves C as it is then
        const int64_t lda = (a_transposed ? m : depth) + kGapOfA, ldb = (transposed ? depth : n) + kGapOfB;
        const int64_t a_rows = a_transposed ? depth : m, a_columns = a_transposed ? m : depth;
        const int64_t b_rows = transposed ? n : depth, b_columns = transposed ? depth : n;
        // Without a period, so that a term of another row or column, however far, is another value.
        const auto value = [](int64_t i, int64_t j) {
          const uint64_t mixed = static_cast<uint64_t>(i * 4096 + j + 1) * 0x9E3779B97F4A7C15u;
          return static_cast<float>(mixed >> 61) - 3.0f;  // -3 to 4
        };
        std::vector<float> a(static_cast<std::size_t>(a_rows * lda), kNaN),
            b(static_cast<std::size_t>(b_rows * ldb), kNaN);
        for (int64_t i = 0; i < a_rows; ++i) {
          for (int64_t k = 0; k < a_columns; ++k) a[static_cast<std::size_t>(i * lda + k)] = value(i, k);
        }
        for (int64_t i = 0; i < b_rows; ++i) {
          for (int64_t k = 0; k < b_columns; ++k) b[static_cast<std::size_t>(i * ldb + k)] = value(i, k);
        }
        std::vector<uint16_t> narrow_a(a.size()), narrow_b(b.size());
        const auto& round = simd::kernels().convert.f32_to_bf16;
        round(static_cast<int64_t>(a.size()), a.data(), narrow_a.data());
        round(static_cast<int64_t>(b.size()), b.data(), narrow_b.data());
        const std::vector<float> bias(static_cast<std::size_t>(n), 7.0f);
        std::vector<float> c(static_cast<std::size_t>(m * n), kNaN);
        matmul({.type = type,
                .m = m,
                .n = n,
                .depth = depth,
                .a = narrow ? static_cast<const void*>(narrow_a.data()) : a.data(),
                .lda = lda,
                .a_transposed = a_transposed,
                .b = narrow ? static_cast<const void*>(narrow_b.data()) : b.data(),
                .ldb = ldb,
                .b_transposed = transposed,
                .bias = bias.data(),
                .c = c.data(),
                .ldc = n},
               2);
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < n; ++j) {
            float sum = 7.0f;
            for (int64_t k = 0; k < depth; ++k) {
              sum += (a_transposed ? value(k, i) : value(i, k)) * (transposed ? value(j, k) : value(k, j));
            }
            ASSERT_EQ(c[static_cast<std::size_t>(i * n + j)], sum)
                << name_of(type) << " depth " << depth << " transposed " << a_transposed << transposed << " at " << i
                << "," << j;
          }
        }
      }
    }
  }
}

// The same for the kernels that read the weights once.
TEST_P(Targets, FewRowsKeepTheirBits) {
  constexpr int64_t kOut = 301, kIn = 777, kAll = 3;
  for (const WeightType type : {WeightType::kFloat32, WeightType::kBfloat16, WeightType::kInt8}) {
    const Stored w(type, kOut, kIn, 1);
    const Matrix x(kAll, kIn, 2);
    Matrix together(kAll, kOut, 3), alone(1, kOut, 4);
    linear({x.data.data(), x.ld}, kAll, w.weight, nullptr, together.data.data(), together.ld, false, 2);
    for (int64_t r = 0; r < kAll; ++r) {
      linear({x.data.data() + r * x.ld, x.ld}, 1, w.weight, nullptr, alone.data.data(), alone.ld, false, 1);
      for (int64_t o = 0; o < kOut; ++o) ASSERT_EQ(alone(0, o), together(r, o)) << name_of(type);
    }
  }
}

float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

TEST_P(Targets, Bfloat16RoundsToNearestEven) {
  const std::vector<std::pair<uint32_t, uint16_t>> cases = {
      {0x3f800000, 0x3f80}, {0x3f807fff, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81}, {0x3f818000, 0x3f82},
      {0xbf818000, 0xbf82}, {0x7f7fffff, 0x7f80}, {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, {0x7f800001, 0x7fc0},
      {0xffffffff, 0xffff}, {0x00000000, 0x0000}, {0x80000000, 0x8000}, {0x00008001, 0x0001}};
  std::vector<float> x;
  for (std::size_t i = 0; i < 5 * cases.size(); ++i) x.push_back(float_of(cases[i % cases.size()].first));
  std::vector<uint16_t> rounded(x.size());
  simd::kernels().convert.f32_to_bf16(static_cast<int64_t>(x.size()), x.data(), rounded.data());
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(rounded[i], cases[i % cases.size()].second) << i;
}

TEST_P(Targets, Int8KeepsHalfALevel) {
  for (const int64_t count : {1, 5, 16, 60, 257}) {
    const Matrix x(1, count, 12);
    std::vector<int8_t> q(static_cast<std::size_t>(count));
    const float scale = simd::kernels().narrow.to_int8(count, x.data.data(), q.data());
    EXPECT_NEAR(scale, x.largest(0) / 127, 1e-6);
    for (int64_t i = 0; i < count; ++i) {
      EXPECT_NEAR(scale * q[static_cast<std::size_t>(i)], x(0, i), 0.5001 * scale);
    }
  }
}

TEST_P(Targets, Int8OfZerosAndOfWhatIsNotFinite) {
  for (const int64_t count : {1, 40}) {
    std::vector<float> x(static_cast<std::size_t>(count), 0.0f);
    std::vector<int8_t> q(x.size(), 99);
    EXPECT_EQ(simd::kernels().narrow.to_int8(count, x.data(), q.data()), 0.0f);
    EXPECT_EQ(q, std::vector<int8_t>(x.size(), 0));
    x.back() = 1e-38f;
    EXPECT_EQ(simd::kernels().narrow.to_int8(count, x.data(), q.data()), 0.0f);
    for (const float bad : {kNaN, std::numeric_limits<float>::infinity()}) {
      for (const std::size_t where : {std::size_t{0}, x.size() - 1}) {
        x.assign(x.size(), 1.0f);
        x[where] = bad;
        EXPECT_FALSE(std::isfinite(simd::kernels().narrow.to_int8(count, x.data(), q.data()))) << bad;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Simd, Targets, testing::ValuesIn(simd::target_names()),
                         [](const auto& test) { return test.param; });

void expect_same(const Matrix& got, const Matrix& want) {
  for (int64_t i = 0; i < want.rows; ++i) {
    for (int64_t j = 0; j < want.columns; ++j) ASSERT_EQ(got(i, j), want(i, j)) << "row " << i << ", column " << j;
  }
  EXPECT_TRUE(got.gaps_untouched());
}

ConstFactor wide(const Matrix& m) { return {m.data.data(), m.ld}; }

// Rounding once for both gradients changes no bit of them.
TEST(Linear, BothGradientsAtOnce) {
  for (const WeightType type : {WeightType::kFloat32, WeightType::kBfloat16}) {
    for (const auto& [rows, add] :
         {std::pair<int64_t, bool>{1, false}, {1, true}, {70, false}, {70, true}, {0, false}}) {
      const int64_t out = 48, in = 33;
      const Stored w(type, out, in, 1);
      const Matrix dy(rows, out, 2), x(rows, in, 3);
      Matrix dx(rows, in, 4), expected_dx(rows, in, 5), dbias(1, out, 6);
      Matrix expected_dbias = dbias;
      std::vector<float> dw(static_cast<std::size_t>(out * in), add ? 0.25f : std::nanf("")), expected_dw = dw;
      linear_backward_weight(wide(dy), wide(x), rows, type, expected_dw.data(), add, out, in,
                             expected_dbias.data.data(), 2);
      linear_backward_input(wide(dy), rows, w.weight, expected_dx.data.data(), dx.ld, false, 2);
      linear_backward(wide(dy), wide(x), rows, w.weight, dx.data.data(), dx.ld, dw.data(), add, dbias.data.data(), 2);
      EXPECT_EQ(dw, expected_dw);
      if (rows == 0) {
        EXPECT_EQ(dw, std::vector<float>(dw.size()));
      }
      expect_same(dx, expected_dx);
      expect_same(dbias, expected_dbias);
    }
  }
}

// Nor does rounding beforehand.
TEST(Linear, FactorsThatAreRoundedAlready) {
  constexpr WeightType kType = WeightType::kBfloat16;
  if (!rounds_activations(kType)) GTEST_SKIP() << "this CPU does not multiply pairs of bfloat16";
  const int64_t rows = 70, out = 48, in = 33;
  const Stored w(kType, out, in, 1);
  const Matrix dy(rows, out, 2), x(rows, in, 3), bias(1, out, 4);
  const auto rounded = [&](const Matrix& m) {
    std::vector<uint16_t> narrow(static_cast<std::size_t>(rows * narrow_ld(m.columns)));
    copy_rows(rows, m.columns, {m.data.data(), m.ld}, {narrow.data(), narrow_ld(m.columns)}, 1);
    return narrow;
  };
  const std::vector<uint16_t> dy_rounded = rounded(dy), x_rounded = rounded(x);
  const ConstFactor narrow_dy(dy_rounded.data(), narrow_ld(out)), narrow_x(x_rounded.data(), narrow_ld(in));

  for (const bool add : {false, true}) {
    Matrix y(rows, out, 5), expected_y = y;
    if (!add) y = Matrix(rows, out, 6);
    linear(wide(x), rows, w.weight, bias.data.data(), expected_y.data.data(), y.ld, add, 2);
    linear(narrow_x, rows, w.weight, bias.data.data(), y.data.data(), y.ld, add, 2);
    expect_same(y, expected_y);
  }

  Matrix expected_dx(rows, in, 7);
  const std::vector<float> held(static_cast<std::size_t>(out * in), 0.25f);
  std::vector<float> expected_dw = held;
  linear_backward(wide(dy), wide(x), rows, w.weight, expected_dx.data.data(), expected_dx.ld, expected_dw.data(), true,
                  nullptr, 2);
  for (const ConstFactor& x_factor : {wide(x), narrow_x}) {
    Matrix dx(rows, in, 8);
    std::vector<float> dw = held;
    linear_backward(narrow_dy, x_factor, rows, w.weight, dx.data.data(), dx.ld, dw.data(), true, nullptr, 2);
    EXPECT_EQ(dw, expected_dw);
    expect_same(dx, expected_dx);
  }
  std::vector<float> dw = held;
  linear_backward_weight(narrow_dy, narrow_x, rows, kType, dw.data(), true, out, in, nullptr, 2);
  EXPECT_EQ(dw, expected_dw);
  Matrix dx(rows, in, 9);
  linear_backward_input(narrow_dy, rows, w.weight, dx.data.data(), dx.ld, false, 2);
  expect_same(dx, expected_dx);
}

TEST(LinearErrors, Int8HasNoGradients) {
  const Stored w(WeightType::kInt8, 4, 4, 1);
  Matrix dy(2, 4, 2), dx(2, 4, 3);
  EXPECT_THROW(linear_backward_input({dy.data.data(), dy.ld}, 2, w.weight, dx.data.data(), dx.ld, false, 1), Error);
  EXPECT_THROW(linear_backward_weight({dy.data.data(), dy.ld}, {dy.data.data(), dy.ld}, 2, WeightType::kInt8,
                                      dx.data.data(), true, 4, 4, nullptr, 1),
               Error);
}

TEST(LinearThreads, LimitIsLifted) {
  const int before = default_threads();
  const Stored w(WeightType::kFloat32, 64, 64, 1);
  const Matrix x(64, 64, 2);
  Matrix y(64, 64, 3);
  for (const int threads : {1, before + 1, 0}) {
    linear({x.data.data(), x.ld}, 64, w.weight, nullptr, y.data.data(), y.ld, false, threads);
    EXPECT_EQ(default_threads(), before);
  }
}

TEST(LargeArray, IsReadInFull) { EXPECT_TRUE(simd::LargeArray(2).read()); }

}  // namespace
}  // namespace deltanet::nn
