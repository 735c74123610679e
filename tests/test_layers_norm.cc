// RMS norms: over rows, with a residual, over heads with a gate.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "layers.h"
#include "nn/gated_norm.h"
#include "nn/rms_norm.h"

namespace deltanet::test {
namespace {

constexpr double kEps = 1e-5;
constexpr double kHeld = 0.5;  // what accumulated gradients hold before the call

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

Values norm_rows(int64_t rows, int64_t n, const Values& x, const Values& w) {
  Values y;
  for (int64_t r = 0; r < rows; ++r) {
    double squares = 0.0;
    for (int64_t i = 0; i < n; ++i) squares += std::pow(x[static_cast<size_t>(r * n + i)], 2);
    const double rstd = 1.0 / std::sqrt(squares / static_cast<double>(n) + kEps);
    for (int64_t i = 0; i < n; ++i) {
      const double weight = w.empty() ? 1.0 : w[static_cast<size_t>(i)];
      y.push_back(x[static_cast<size_t>(r * n + i)] * rstd * weight);
    }
  }
  return y;
}

Layer rms_norm_layer(int64_t rows, int64_t n, bool weighted) {
  return {{random_values(rows * n, 1, 0.7), weighted ? random_values(n, 2) : Values()},
          [=](const std::vector<Values>& in) { return norm_rows(rows, n, in[0], in[1]); },
          [=](const std::vector<Values>& in, const Values& upstream, int threads) {
            Slice x(rows, n, in[0]), y(rows, n), again(rows, n), dy(rows, n, upstream), dx(rows, n, kHeld);
            const std::vector<float> w = floats(in[1]);
            std::vector<float> rstd(static_cast<size_t>(rows)), dw(w.size(), static_cast<float>(kHeld));
            const float* weight = weighted ? w.data() : nullptr;
            nn::rms_norm_forward(rows, n, static_cast<float>(kEps), x.rows(), weight, y.rows(), rstd.data(), threads);
            nn::rms_norm_apply(rows, n, x.rows(), rstd.data(), weight, again.rows(), threads);
            EXPECT_EQ(again.values(), y.values());
            nn::rms_norm_backward(rows, n, x.rows(), rstd.data(), weight, dy.rows(), dx.rows(),
                                  weighted ? dw.data() : nullptr, threads);
            return LayerResult{y.values(), {minus(dx.values(), kHeld), minus(doubles(dw), kHeld)}};
          }};
}

class RmsNorm : public testing::TestWithParam<int64_t> {};

TEST_P(RmsNorm, EqualsReference) { check_layer(rms_norm_layer(3, GetParam(), true)); }
TEST_P(RmsNorm, EqualsReferenceWithoutWeight) { check_layer(rms_norm_layer(3, GetParam(), false)); }

// The sum and y are results; r enters like h.
TEST_P(RmsNorm, AddsTheResidualFirst) {
  const int64_t rows = 3, n = GetParam();
  const Values h0 = random_values(rows * n, 1), r0 = random_values(rows * n, 3), w0 = random_values(n, 2);
  Values sum;
  for (size_t i = 0; i < h0.size(); ++i) sum.push_back(h0[i] + r0[i]);
  for_every_target([&] {
    for (const int threads : {1, 2}) {
      Slice h(rows, n, h0), r(rows, n, r0), y(rows, n), total(rows, n);
      nn::add_rms_norm_forward(rows, n, static_cast<float>(kEps), h.rows(), r.rows(), floats(w0).data(), total.rows(),
                               y.rows(), nullptr, threads);
      expect_close(total.values(), sum, 1e-7, 1e-7, "sum");
      expect_close(y.values(), norm_rows(rows, n, sum, w0), 3e-6, 3e-7, "y");
    }
  });
}

INSTANTIATE_TEST_SUITE_P(N, RmsNorm, testing::Values(1, 7, 16, 60, 128, 1000),
                         [](const auto& test) { return std::to_string(test.param); });

TEST(RmsNorm, BlocksAddUpOnAnyNumberOfThreads) { check_blocks(rms_norm_layer(300, 1000, true)); }

TEST(RmsNorm, MayBeInPlace) {
  const Values x0 = random_values(5 * 60, 1);
  for_every_target([&] {
    Slice x(5, 60, x0);
    nn::rms_norm_forward(5, 60, static_cast<float>(kEps), x.rows(), nullptr, x.rows(), nullptr, 1);
    expect_close(x.values(), norm_rows(5, 60, x0, {}), 3e-6, 3e-7, "y");
  });
}

// Divided by the root of infinity, rows would become zeros.
TEST(RmsNorm, ShowsWhatIsNotFiniteOrOverflows) {
  const int64_t n = 20;
  for (const double bad : {1e25, std::numeric_limits<double>::infinity(), std::nan("")}) {
    Values values = random_values(3 * n, 1);
    values[n + 7] = bad;
    for_every_target([&] {
      Slice x(3, n, values), y(3, n), gate(3, n, random_values(3 * n, 2)), zero(3, n, Values(3 * n, 0.0)), sum(3, n);
      const auto check = [&](const char* what) {
        const Values got = y.values();
        for (size_t i = 0; i < got.size(); ++i) {
          EXPECT_EQ(std::isnan(got[i]), i / n == 1) << what << " of " << bad << " at " << i << " on " << simd_target();
        }
      };
      const float eps = static_cast<float>(kEps);
      nn::rms_norm_forward(3, n, eps, x.rows(), nullptr, y.rows(), nullptr, 1);
      check("rms_norm");
      nn::add_rms_norm_forward(3, n, eps, zero.rows(), x.rows(), nullptr, sum.rows(), y.rows(), nullptr, 1);
      check("add_rms_norm");
      nn::gated_norm_forward({1, n, eps, nn::GateActivation::kSilu, nullptr}, 3, x.rows(), gate.rows(), y.rows(),
                             nullptr, 1);
      check("gated_norm");
    });
  }
}

// ---- over heads, with a gate

using nn::GateActivation;

double activate(GateActivation activation, double gate) {
  if (activation == GateActivation::kNone) return 1.0;
  return activation == GateActivation::kSigmoid ? sigmoid(gate) : gate * sigmoid(gate);
}

Layer gated_norm_layer(int64_t rows, int64_t heads, int64_t V, GateActivation activation, bool weighted = true,
                       bool in_place = false) {
  const int64_t n = heads * V;
  const bool gated = activation != GateActivation::kNone;
  return {{random_values(rows * n, 1, 0.3), random_values(rows * n, 2, 3.0), weighted ? random_values(V, 3) : Values()},
          [=](const std::vector<Values>& in) {
            Values y = norm_rows(rows * heads, V, in[0], in[2]);
            for (size_t i = 0; i < y.size(); ++i) y[i] *= activate(activation, in[1][i]);
            return y;
          },
          [=](const std::vector<Values>& in, const Values& upstream, int threads) {
            Slice o(rows, n, in[0]), gate(rows, n, in[1]), y(rows, n), dy(rows, n, upstream), d_o(rows, n),
                dgate(rows, n);
            const std::vector<float> w = floats(in[2]);
            std::vector<float> rstd(static_cast<size_t>(rows * heads)), dw(w.size(), static_cast<float>(kHeld));
            const nn::GatedNorm norm{heads, V, static_cast<float>(kEps), activation, weighted ? w.data() : nullptr};
            const nn::ConstView gate_rows = gated ? nn::ConstView(gate.rows()) : nn::ConstView();
            nn::gated_norm_forward(norm, rows, o.rows(), gate_rows, y.rows(), rstd.data(), threads);
            Slice& out_o = in_place ? dy : d_o;
            Slice& out_gate = in_place ? gate : dgate;
            nn::gated_norm_backward(norm, rows, o.rows(), gate_rows, rstd.data(), dy.rows(), out_o.rows(),
                                    gated ? out_gate.rows() : nn::View(), weighted ? dw.data() : nullptr, threads);
            return LayerResult{y.values(),
                               {out_o.values(), gated ? out_gate.values() : Values(), minus(doubles(dw), kHeld)}};
          }};
}

class GatedNorm : public testing::TestWithParam<std::tuple<int64_t, GateActivation>> {};

TEST_P(GatedNorm, EqualsReference) {
  const auto [V, activation] = GetParam();
  check_layer(gated_norm_layer(2, V < 100 ? 3 : 1, V, activation));
}

std::string test_name(const testing::TestParamInfo<std::tuple<int64_t, GateActivation>>& test) {
  static constexpr const char* kNames[] = {"none", "sigmoid", "silu"};
  return std::to_string(std::get<0>(test.param)) + "_" + kNames[static_cast<int>(std::get<1>(test.param))];
}

INSTANTIATE_TEST_SUITE_P(V, GatedNorm,
                         testing::Combine(testing::Values(1, 7, 16, 60, 128),
                                          testing::Values(GateActivation::kNone, GateActivation::kSigmoid,
                                                          GateActivation::kSilu)),
                         test_name);

TEST(GatedNorm, NeedsNoWeight) { check_layer(gated_norm_layer(2, 2, 20, GateActivation::kSilu, false)); }
TEST(GatedNorm, BackwardMayBeInPlace) { check_layer(gated_norm_layer(2, 2, 20, GateActivation::kSilu, true, true)); }
TEST(GatedNorm, BlocksAddUpOnAnyNumberOfThreads) { check_blocks(gated_norm_layer(300, 4, 64, GateActivation::kSilu)); }

}  // namespace
}  // namespace deltanet::test
