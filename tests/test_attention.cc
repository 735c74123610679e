// Softmax attention against straightforward float64 code: values and gradients of all shapes on every SIMD target, what
// must not change a single bit, extreme scores, and the errors.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "attention_samples.h"
#include "deltanet/error.h"

namespace deltanet::test {
namespace {

// The same for the columns [begin, end) of a matrix of gradients: dq, dk and dv have sizes of their own.
double column_difference(const AttentionSample& s, const std::vector<float>& actual,
                         const std::vector<double>& expected, int64_t begin, int64_t end) {
  std::vector<float> x;
  std::vector<double> y;
  for (int64_t row = 0; row < s.rows(); ++row) {
    for (int64_t i = row * s.ld() + begin; i < row * s.ld() + end; ++i) {
      x.push_back(actual[static_cast<std::size_t>(i)]);
      y.push_back(expected[static_cast<std::size_t>(i)]);
    }
  }
  return difference(x, y);
}

TEST_P(AttentionShapes, ForwardAndGradientsEqualReferenceOnEveryTarget) {
  const AttentionSample s(GetParam(), 1);
  const AttentionReference expected = reference(s);
  for (const std::string& target : simd_targets()) {
    SCOPED_TRACE(target);
    set_simd_target(target);
    const AttentionResult forward = run(s, s.call(), 2);
    EXPECT_LE(difference(forward.o, expected.o), kForwardBound);
    EXPECT_LE(difference(forward.lse, expected.lse), kForwardBound);
    const std::vector<float> grads = run_backward(s, forward, 2);
    // With one key, the gradient of a score is exactly 0, and what remains of do.v - do.o is rounding.
    if (s.shape.window != 1 && *std::max_element(s.shape.lengths.begin(), s.shape.lengths.end()) > 1) {
      EXPECT_LE(column_difference(s, grads, expected.grads, 0, s.o_columns()), kGradientBound);
      EXPECT_LE(column_difference(s, grads, expected.grads, s.o_columns(), s.v_column()), kGradientBound);
    }
    EXPECT_LE(column_difference(s, grads, expected.grads, s.v_column(), s.ld() - AttentionSample::kGap),
              kGradientBound);
    for (int64_t row = 0; row < s.rows(); ++row) {
      EXPECT_TRUE(std::isnan(grads[static_cast<std::size_t>((row + 1) * s.ld() - 1)])) << "the gap was written to";
    }
  }
}

TEST_P(AttentionShapes, ThreadsGiveTheSameBits) {
  const AttentionSample s(GetParam(), 2);
  const AttentionResult one = run(s, s.call(), 1), two = run(s, s.call(), 2);
  EXPECT_TRUE(same_bits(one.o, two.o) && same_bits(one.lse, two.lse));
  const std::vector<float> grads_one = run_backward(s, one, 1), grads_two = run_backward(s, one, 2);
  for (int64_t row = 0; row < s.rows(); ++row) {
    EXPECT_TRUE(
        same_bits(grads_one.data() + row * s.ld(), grads_two.data() + row * s.ld(), s.ld() - AttentionSample::kGap));
  }
}

TEST_P(AttentionShapes, EarlierTokensHaveTheSameBitsWhateverFollows) {
  const AttentionSample s(GetParam(), 3);
  const AttentionResult whole = run(s, s.call(), 2);
  for (std::size_t n = 0; n + 1 < s.offsets.size(); ++n) {
    for (const int64_t length :
         {s.shape.lengths[n], s.shape.lengths[n] / 2, std::min<int64_t>(1, s.shape.lengths[n])}) {
      const AttentionResult part = run(s, s.call({0, length}, s.offsets[n]));
      EXPECT_TRUE(same_bits(part.o.data(), whole.o.data() + s.offsets[n] * s.o_columns(), length * s.o_columns()));
      EXPECT_TRUE(same_bits(part.lse.data(), whole.lse.data() + s.offsets[n] * s.shape.query_heads,
                            length * s.shape.query_heads));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionShapes, testing::ValuesIn(attention_cases()),
                         [](const auto& test) { return name_of(test.param); });

// Scores of several thousand: the largest takes all, the others underflow to 0.
TEST_F(AttentionTest, LargeScoresStayFinite) {
  const AttentionSample s({{130}, 2, 1, 64, 0}, 5, 1000.0f);
  const AttentionReference expected = reference(s);
  for (const std::string& target : simd_targets()) {
    set_simd_target(target);
    const AttentionResult forward = run(s, s.call());
    EXPECT_LE(difference(forward.o, expected.o), 2e-3);  // of a score of 5000, 3e-4 is rounding
    EXPECT_LE(difference(forward.lse, expected.lse), kForwardBound);
    for (const float x : run_backward(s, forward)) ASSERT_FALSE(std::isinf(x));
  }
}

TEST_F(AttentionTest, ANanShowsInTheRowsThatSeeItOnly) {
  for (const std::string& target : simd_targets()) {
    set_simd_target(target);
    AttentionSample query({{200}, 1, 1, 16, 64}, 6), key = query;
    query.at(100, 0) = kNan;
    key.at(100, key.o_columns()) = kNan;
    const AttentionResult of_query = run(query, query.call()), of_key = run(key, key.call());
    for (int64_t row = 0; row < query.rows(); ++row) {
      const auto first = static_cast<std::size_t>(row * 16);
      EXPECT_EQ(std::isnan(of_query.o[first]), row == 100) << row << " on " << target;
      EXPECT_EQ(std::isnan(of_key.o[first]), row >= 100 && row < 164) << row << " on " << target;
    }
  }
  set_simd_target("");
}

TEST_F(AttentionTest, GradientsEqualFiniteDifferences) {
  AttentionSample s({{9}, 2, 1, 6, 4}, 7);
  const std::vector<float> grads = run_backward(s, run(s, s.call()));
  const auto loss = [&] {
    const AttentionReference now = reference(s);
    double sum = 0;
    for (std::size_t i = 0; i < now.o.size(); ++i) sum += now.o[i] * static_cast<double>(s.d_o[i]);
    return sum;
  };
  for (int64_t row = 0; row < s.rows(); ++row) {
    for (int64_t column = 0; column < s.ld() - AttentionSample::kGap; ++column) {
      const float before = s.at(row, column);
      s.at(row, column) = before + 1.0f / 1024;
      const double above = loss();
      s.at(row, column) = before - 1.0f / 1024;
      const double step = static_cast<double>(before + 1.0f / 1024) - static_cast<double>(s.at(row, column));
      const double below = loss();
      s.at(row, column) = before;
      EXPECT_NEAR(grads[static_cast<std::size_t>(row * s.ld() + column)], (above - below) / step, 2e-5);
    }
  }
}

std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(AttentionTest, WrongArgumentsAreNamed) {
  const AttentionSample s({{5}, 4, 2, 8, 3}, 9);
  std::vector<float> o(5 * 32);
  const auto forward = [&](const std::function<void(Attention&)>& change) {
    Attention in = s.call();
    change(in);
    return message([&] { nn::attention_forward(in, o.data(), 32, nullptr, 1); });
  };
  const nn::KvCache narrow(1, 2, 8, 2), two(2, 2, 8, 3), heads(1, 1, 8, 3), wide_heads(1, 2, 9, 3);
  const nn::KvCache equal(1, 2, 8, 3), longer(1, 2, 8, 4), endless(1, 2, 8, 0);
  const std::vector<int64_t> decreasing{0, 5, 4}, late{1, 5};
  const std::string tag = "[attention_forward] ";
  EXPECT_EQ(forward([](Attention&) {}), "no error");
  EXPECT_EQ(forward([](Attention& in) { in.key_heads = 3; }),
            tag + "heads: given 4 query heads for 3 key heads; expected a multiple");
  EXPECT_EQ(forward([](Attention& in) { in.ldk = 15; }), tag + "k: has rows 15 apart; expected at least 16");
  EXPECT_EQ(forward([](Attention& in) { in.v = nullptr; }), tag + "v: not given; expected 2 heads");
  EXPECT_EQ(forward([](Attention& in) { in.window = -1; }), tag + "window: given -1; expected 0 (none) or more");
  EXPECT_EQ(forward([&](Attention& in) { in.offsets = decreasing; }),
            tag + "offsets: given 4 after 5; expected no decrease");
  EXPECT_EQ(forward([&](Attention& in) { in.offsets = late; }), tag + "offsets: given 1 first; expected 0 first");
  EXPECT_EQ(forward([&](Attention& in) { in.past = &two; }), tag + "past: has 2 sequences; expected 1");
  EXPECT_EQ(forward([&](Attention& in) { in.past = &heads; }), tag + "past: has 1 heads of 8; expected 2 of 8");
  EXPECT_EQ(forward([&](Attention& in) { in.past = &narrow; }), tag + "past: keeps a window of 2; expected at least 3");
  EXPECT_EQ(forward([&](Attention& in) { in.past = &wide_heads; }), tag + "past: has 2 heads of 9; expected 2 of 8");
  EXPECT_EQ(forward([&](Attention& in) { in.past = &equal, in.window = 0; }),
            tag + "past: keeps a window of 3; expected at least all tokens");
  for (const nn::KvCache* enough : {&equal, &longer, &endless}) {
    EXPECT_EQ(forward([&](Attention& in) { in.past = enough; }), "no error");
  }
  EXPECT_EQ(forward([&](Attention& in) { in.past = &endless, in.window = 0; }), "no error");
  EXPECT_EQ(forward([](Attention& in) { in.query_heads = 0; }),
            tag + "heads: given 0 query heads for 2 key heads; expected a multiple");
  EXPECT_EQ(forward([](Attention& in) { in.key_heads = 0; }),
            tag + "heads: given 4 query heads for 0 key heads; expected a multiple");
  EXPECT_EQ(forward([](Attention& in) { in.head_dim = 0; }), tag + "head_dim: given 0; expected a number above 0");
  EXPECT_EQ(forward([](Attention& in) { in.ldq = 31; }), tag + "q: has rows 31 apart; expected at least 32");
  EXPECT_EQ(forward([](Attention& in) { in.ldv = 15; }), tag + "v: has rows 15 apart; expected at least 16");
  EXPECT_EQ(message([&] { nn::attention_forward(s.call(), o.data(), 31, nullptr, 1); }),
            tag + "o: has rows 31 apart; expected at least 32");
  EXPECT_EQ(message([&] { nn::attention_backward(s.call(), {}, 1); }),
            "[attention_backward] o: not given; expected all arrays");
}

}  // namespace
}  // namespace deltanet::test
