#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/arena.h"
#include "deltanet/runtime.h"
#include "nn/attention/attention.h"

// Random inputs for softmax attention, its calls, and the same in straightforward float64.

namespace deltanet::test {

using nn::Attention;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct AttentionCase {
  std::vector<int64_t> lengths;
  int64_t query_heads, key_heads, head_dim, window = 0;
};
std::string name_of(const AttentionCase& c);
// Odd lengths and head sizes, grouped heads, packed sequences, windows.
const std::vector<AttentionCase>& attention_cases();

// q, k, v as columns of one matrix with a gap of NaN behind them, as they leave a projection.
struct AttentionSample {
  AttentionCase shape;
  std::vector<int64_t> offsets{0};
  std::vector<float> matrix, d_o;

  AttentionSample(const AttentionCase& c, unsigned seed, float q_scale = 1.0f);

  static constexpr int64_t kGap = 3;
  int64_t rows() const { return offsets.back(); }
  int64_t o_columns() const { return shape.query_heads * shape.head_dim; }
  int64_t k_columns() const { return shape.key_heads * shape.head_dim; }
  int64_t v_column() const { return o_columns() + k_columns(); }
  int64_t ld() const { return o_columns() + 2 * k_columns() + kGap; }
  float& at(int64_t row, int64_t column) { return matrix[static_cast<std::size_t>(row * ld() + column)]; }
  double q(int64_t row, int64_t head, int64_t d) const { return value(row, head * shape.head_dim + d); }
  double k(int64_t row, int64_t head, int64_t d) const { return value(row, o_columns() + head * shape.head_dim + d); }
  double v(int64_t row, int64_t head, int64_t d) const { return value(row, v_column() + head * shape.head_dim + d); }
  double value(int64_t row, int64_t column) const { return matrix[static_cast<std::size_t>(row * ld() + column)]; }

  // Rows from `begin` on, cut into sequences at `ends`, which must outlive the result.
  Attention call(const std::vector<int64_t>& ends, int64_t begin) const;
  Attention call() const { return call(offsets, 0); }
};

struct AttentionResult {
  std::vector<float> o, lse;
};
AttentionResult run(const AttentionSample& s, const Attention& in, int threads = 1);

// dq, dk, dv side by side like the matrix, with the same gap.
std::vector<float> run_backward(const AttentionSample& s, const AttentionResult& forward, int threads = 1);

struct AttentionReference {
  std::vector<double> o, lse, grads;
};
AttentionReference reference(const AttentionSample& s);

// Largest difference over the largest value; entries that were never written are NaN and make it infinite.
double difference(const std::vector<float>& actual, const std::vector<double>& expected);
double difference(const std::vector<float>& actual, const std::vector<float>& expected);

bool same_bits(const float* x, const float* y, int64_t count);
bool same_bits(const std::vector<float>& x, const std::vector<float>& y);

// Rounding 6e-8 per operation, a random walk over D <= 128 products and up to a few hundred keys, largest entry = 1.
constexpr double kForwardBound = 2e-6, kGradientBound = 5e-6;

// Poisoned scratch, and the best SIMD target again after each test.
class AttentionTest : public testing::Test {
 protected:
  void SetUp() override { Arena::set_poison(true); }
  void TearDown() override { set_simd_target(""); }
};
class AttentionShapes : public AttentionTest, public testing::WithParamInterface<AttentionCase> {};

}  // namespace deltanet::test
