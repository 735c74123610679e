// Elementwise layers: sigmoid, SiLU, the decay gate, SwiGLU.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "layers.h"
#include "nn/gates.h"
#include "nn/swiglu.h"

namespace deltanet::test {
namespace {

constexpr double kHeld = 0.5;  // what accumulated gradients hold before the call

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

Values map(const Values& x, double (*f)(double)) {
  Values y;
  for (const double v : x) y.push_back(f(v));
  return y;
}

// Finite differences of long rows take their time.
int64_t rows_for(int64_t n) { return n < 1000 ? 3 : 1; }

class Gates : public testing::TestWithParam<int64_t> {};

Layer sigmoid_layer(int64_t rows, int64_t n) {
  return {{random_values(rows * n, 1, 3.0)},
          [](const std::vector<Values>& in) { return map(in[0], [](double x) { return 2.0 * sigmoid(x); }); },
          [=](const std::vector<Values>& in, const Values& upstream, int threads) {
            Slice x(rows, n, in[0]), y(rows, n), dy(rows, n, upstream), dx(rows, n);
            nn::sigmoid_gate_forward(rows, n, 2.0f, x.rows(), y.rows(), threads);
            nn::sigmoid_gate_backward(rows, n, 2.0f, y.rows(), dy.rows(), dx.rows(), threads);
            return LayerResult{y.values(), {dx.values()}};
          }};
}

TEST_P(Gates, SigmoidEqualsReference) { check_layer(sigmoid_layer(rows_for(GetParam()), GetParam())); }

Layer silu_layer(int64_t rows, int64_t n) {
  return {{random_values(rows * n, 1, 3.0)},
          [](const std::vector<Values>& in) { return map(in[0], [](double x) { return x * sigmoid(x); }); },
          [=](const std::vector<Values>& in, const Values& upstream, int threads) {
            Slice x(rows, n, in[0]), y(rows, n), dy(rows, n, upstream), dx(rows, n);
            nn::silu_forward(rows, n, x.rows(), y.rows(), threads);
            nn::silu_backward(rows, n, x.rows(), dy.rows(), dx.rows(), threads);
            return LayerResult{y.values(), {dx.values()}};
          }};
}

TEST_P(Gates, SiluEqualsReference) { check_layer(silu_layer(rows_for(GetParam()), GetParam())); }

Layer swiglu_layer(int64_t rows, int64_t n) {
  return {{random_values(rows * n, 1, 3.0), random_values(rows * n, 2)},
          [](const std::vector<Values>& in) {
            Values y;
            for (size_t i = 0; i < in[0].size(); ++i) y.push_back(in[0][i] * sigmoid(in[0][i]) * in[1][i]);
            return y;
          },
          [=](const std::vector<Values>& in, const Values& upstream, int threads) {
            Slice gate(rows, n, in[0]), up(rows, n, in[1]), y(rows, n), again(rows, n), dy(rows, n, upstream),
                dgate(rows, n), dup(rows, n);
            nn::swiglu_forward(rows, n, gate.rows(), up.rows(), y.rows(), threads);
            nn::swiglu_backward(rows, n, gate.rows(), up.rows(), dy.rows(), dgate.rows(), dup.rows(), {}, threads);
            const LayerResult result{y.values(), {dgate.values(), dup.values()}};
            nn::swiglu_backward(rows, n, gate.rows(), up.rows(), dy.rows(), gate.rows(), up.rows(), again.rows(),
                                threads);
            EXPECT_EQ(again.values(), result.y);
            EXPECT_EQ(gate.values(), result.gradients[0]) << "in place";
            EXPECT_EQ(up.values(), result.gradients[1]) << "in place";
            return result;
          }};
}

TEST_P(Gates, SwigluEqualsReference) { check_layer(swiglu_layer(rows_for(GetParam()), GetParam())); }

// heads*per_head columns
Layer decay_layer(int64_t rows, int64_t heads, int64_t per_head, bool biased) {
  const int64_t n = heads * per_head;
  return {{random_values(rows * n, 1, 3.0), random_values(heads, 2), biased ? random_values(n, 3) : Values()},
          [=](const std::vector<Values>& in) {
            Values g;
            for (size_t i = 0; i < in[0].size(); ++i) {
              const size_t j = i % static_cast<size_t>(n);
              const double rate = std::exp(in[1][j / static_cast<size_t>(per_head)]);
              g.push_back(-rate * softplus(in[0][i] + (biased ? in[2][j] : 0.0)));
            }
            return g;
          },
          [=](const std::vector<Values>& in, const Values& upstream, int threads) {
            Slice x(rows, n, in[0]), g(rows, n), dg(rows, n, upstream), dx(rows, n);
            const std::vector<float> A_log = floats(in[1]), bias = floats(in[2]);
            std::vector<float> dA_log(A_log.size(), static_cast<float>(kHeld)),
                dbias(bias.size(), static_cast<float>(kHeld));
            const nn::DecayGate gate{heads, n, A_log.data(), biased ? bias.data() : nullptr};
            nn::decay_gate_forward(gate, rows, x.rows(), g.rows(), threads);
            nn::decay_gate_backward(gate, rows, x.rows(), dg.rows(), dx.rows(), dA_log.data(),
                                    biased ? dbias.data() : nullptr, threads);
            return LayerResult{g.values(), {dx.values(), minus(doubles(dA_log), kHeld), minus(doubles(dbias), kHeld)}};
          }};
}

TEST_P(Gates, DecayPerHeadEqualsReference) { check_layer(decay_layer(rows_for(GetParam()), GetParam(), 1, true)); }
TEST_P(Gates, DecayWithoutBiasEqualsReference) { check_layer(decay_layer(rows_for(GetParam()), GetParam(), 1, false)); }

INSTANTIATE_TEST_SUITE_P(N, Gates, testing::Values(1, 7, 16, 60, 128, 1000),
                         [](const auto& test) { return std::to_string(test.param); });

TEST(Gates, DecayPerKeyEqualsReference) { check_layer(decay_layer(4, 3, 20, true)); }

TEST(Gates, BlocksAddUpOnAnyNumberOfThreads) {
  check_blocks(sigmoid_layer(300, 200));
  check_blocks(silu_layer(300, 200));
  check_blocks(swiglu_layer(300, 200));
  check_blocks(decay_layer(300, 4, 64, true));
}

// Every digit counts in the tails: a decay of 1e-20 per token is not zero.
TEST(Gates, KeepTheirDigitsInTheTails) {
  Values x;
  for (double at = -86.0; at <= 100.0; at += 0.01) x.push_back(static_cast<float>(at));
  const auto n = static_cast<int64_t>(x.size());
  const std::vector<float> A_log = {0.0f};
  const nn::DecayGate gate{1, n, A_log.data(), nullptr};
  for_every_target([&] {
    Slice in(1, n, x), y(1, n);
    nn::sigmoid_gate_forward(1, n, 1.0f, in.rows(), y.rows(), 1);
    expect_close(y.values(), map(x, sigmoid), 4e-7, 0.0, "sigmoid");
    nn::silu_forward(1, n, in.rows(), y.rows(), 1);
    expect_close(y.values(), map(x, [](double v) { return v * sigmoid(v); }), 5e-7, 0.0, "silu");
    nn::decay_gate_forward(gate, 1, in.rows(), y.rows(), 1);
    expect_close(y.values(), map(x, [](double v) { return -softplus(v); }), 5e-7, 0.0, "softplus");
  });
}

TEST(Gates, AreDefinedForAllNumbers) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const Values x = {-inf, -3e38, -1000.0, -0.0, 1000.0, 3e38, inf};
  const auto n = static_cast<int64_t>(x.size());
  const std::vector<float> A_log = {0.0f};
  const nn::DecayGate gate{1, n, A_log.data(), nullptr};
  const nn::DecayGate one{1, 1, A_log.data(), nullptr};
  for_every_target([&] {
    Slice in(1, n, x), y(1, n);
    nn::sigmoid_gate_forward(1, n, 1.0f, in.rows(), y.rows(), 1);
    EXPECT_EQ(y.values(), Values({0.0, 0.0, 0.0, 0.5, 1.0, 1.0, 1.0}));
    nn::decay_gate_forward(gate, 1, in.rows(), y.rows(), 1);
    const Values g = y.values();
    EXPECT_EQ(Values(g.begin(), g.begin() + 3), Values({0.0, 0.0, 0.0}));
    EXPECT_EQ(Values(g.begin() + 4, g.end()), Values({-1000.0, static_cast<float>(-3e38), -inf}));
    // A NaN must not turn into a number: divergence of a training run has to show.
    Slice bad(1, 1, nan), out(1, 1);
    nn::sigmoid_gate_forward(1, 1, 1.0f, bad.rows(), out.rows(), 1);
    EXPECT_TRUE(std::isnan(out.values()[0]));
    nn::silu_forward(1, 1, bad.rows(), out.rows(), 1);
    EXPECT_TRUE(std::isnan(out.values()[0]));
    nn::decay_gate_forward(one, 1, bad.rows(), out.rows(), 1);
    EXPECT_TRUE(std::isnan(out.values()[0]));
  });
}

}  // namespace
}  // namespace deltanet::test
