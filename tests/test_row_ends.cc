// Kernels that take rows of any length touch nothing behind them: every array ends at a page that nobody may touch, for
// every length up to several vectors, on every SIMD target. What they compute is the subject of other tests; here it
// must be the same as in memory that goes on.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "guarded.h"
#include "layers.h"
#include "nn/linear.h"
#include "nn/quantize.h"
#include "simd/kernels.h"

namespace deltanet::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Arrays at the end of their pages, or in memory that goes on with NaN.
class Arrays {
 public:
  explicit Arrays(bool guarded) : guarded_(guarded) {}

  float* take(int64_t count, uint32_t seed) {
    std::vector<float> values = floats(random_values(count, seed));
    if (guarded_)
      return arrays_.emplace_back(std::make_unique<Guarded<float>>(values), std::vector<float>(), count)
          .guarded->data();
    values.resize(values.size() + 64, kNan);
    return arrays_.emplace_back(nullptr, values, count).plain.data();
  }
  simd::View rows(int64_t n, uint32_t seed) { return {take(kRows * n, seed), n}; }

  std::vector<std::vector<float>> values() const {
    std::vector<std::vector<float>> all;
    for (const One& one : arrays_) {
      all.push_back(guarded_ ? one.guarded->values()
                             : std::vector<float>(one.plain.begin(), one.plain.begin() + one.count));
      for (std::size_t i = static_cast<std::size_t>(one.count); i < one.plain.size(); ++i) {
        EXPECT_TRUE(std::isnan(one.plain[i])) << "written behind the end";
      }
    }
    return all;
  }

  static constexpr int64_t kRows = 2;

 private:
  struct One {
    std::unique_ptr<Guarded<float>> guarded;  // or else plain
    std::vector<float> plain;
    int64_t count;
  };
  bool guarded_;
  std::vector<One> arrays_;
};

class RowEnds : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(simd::select_target(GetParam())); }
  void TearDown() override { simd::select_target(""); }

  // Calls body(n, arrays) for rows of n floats.
  static void check(const std::function<void(int64_t n, Arrays& arrays)>& body) {
    for (int64_t n = 1; n <= 70; ++n) {
      Arrays guarded(true), plain(false);
      body(n, guarded);
      body(n, plain);
      const auto got = guarded.values(), want = plain.values();
      for (std::size_t i = 0; i < want.size(); ++i) ASSERT_EQ(got[i], want[i]) << n << " floats, array " << i;
    }
  }
};

TEST_P(RowEnds, Norms) {
  const simd::LayerKernels& kernels = simd::kernels().layers;
  check([&](int64_t n, Arrays& a) {
    constexpr int64_t R = Arrays::kRows;
    float *w = a.take(n, 1), *rstd = a.take(R, 2), *dw = a.take(n, 3);
    kernels.rms_norm(R, n, 1e-3f, a.rows(n, 4), w, a.rows(n, 5), rstd);
    kernels.add_rms_norm(R, n, 1e-3f, a.rows(n, 6), a.rows(n, 7), w, a.rows(n, 8), a.rows(n, 9), rstd);
    kernels.rms_norm_apply(R, n, a.rows(n, 10), rstd, w, a.rows(n, 11));
    kernels.rms_norm_grad(R, n, a.rows(n, 12), rstd, w, a.rows(n, 13), a.rows(n, 14), dw);
    kernels.rms_norm_grad(R, n, a.rows(n, 15), rstd, nullptr, a.rows(n, 16), a.rows(n, 17), nullptr);
    for (const auto activation :
         {simd::GateActivation::kNone, simd::GateActivation::kSigmoid, simd::GateActivation::kSilu}) {
      const simd::GatedNorm norm{R, 1, n, activation, a.rows(n, 18), a.rows(n, 19), w};
      kernels.gated_norm(norm, 1e-3f, a.rows(n, 20), rstd);
      kernels.gated_norm_grad({norm, rstd, a.rows(n, 21), a.rows(n, 22), a.rows(n, 23), dw});
    }
  });
}

TEST_P(RowEnds, Gates) {
  const simd::LayerKernels& kernels = simd::kernels().layers;
  check([&](int64_t n, Arrays& a) {
    constexpr int64_t R = Arrays::kRows;
    kernels.sigmoid(R, n, 2.0f, a.rows(n, 1), a.rows(n, 2));
    kernels.sigmoid_grad(R, n, 2.0f, a.rows(n, 3), a.rows(n, 4), a.rows(n, 5));
    kernels.silu(R, n, a.rows(n, 6), a.rows(n, 7));
    kernels.silu_grad(R, n, a.rows(n, 8), a.rows(n, 9), a.rows(n, 10));
    kernels.swiglu(R, n, a.rows(n, 11), a.rows(n, 12), a.rows(n, 13));
    kernels.swiglu_grad(R, n, a.rows(n, 14), a.rows(n, 15), a.rows(n, 16), a.rows(n, 17), a.rows(n, 18), a.rows(n, 19));
    float *rate = a.take(n, 20), *bias = a.take(n, 21), *drate = a.take(n, 22), *dbias = a.take(n, 23);
    kernels.decay(R, n, rate, bias, a.rows(n, 24), a.rows(n, 25));
    kernels.decay_grad(R, n, rate, bias, a.rows(n, 26), a.rows(n, 27), a.rows(n, 28), drate, dbias);
    float* x = a.take(n, 29);
    const float largest = kernels.max(n, x);
    EXPECT_EQ(largest, *std::max_element(x, x + n));
    a.take(1, 0)[0] = static_cast<float>(kernels.exp_sum(n, largest, x, a.take(n, 30)));
    kernels.scale(n, 3.0f, x);
  });
}

TEST_P(RowEnds, Convolutions) {
  const simd::LayerKernels& kernels = simd::kernels().layers;
  for (const int64_t width : {3, 4}) {
    for (const int64_t tokens : {int64_t{1}, simd::kConvTokens}) {
      check([&](int64_t n, Arrays& a) {
        simd::ConvGroup group{.tokens = tokens, .channels = n, .width = width, .weight = a.take(n * width, 1)};
        group.bias = a.take(n, 2);
        group.silu = true;
        for (int64_t i = 0; i < tokens + width - 1; ++i) group.x[i] = a.take(n, 3 + static_cast<uint32_t>(i));
        for (int64_t i = 0; i < tokens; ++i) group.y[i] = a.take(n, 20);
        kernels.conv(group);
        for (int64_t i = 0; i < tokens; ++i) group.dy[i] = a.take(n, 21);
        group.dweight = a.take(width * n, 22);
        group.ld_dweight = n;
        group.dbias = a.take(n, 23);
        kernels.conv_grad(group);
      });
    }
  }
}

TEST_P(RowEnds, OptimizerAndSums) {
  const simd::Kernels& kernels = simd::kernels();
  check([&](int64_t n, Arrays& a) {
    float *p = a.take(n, 1), *m = a.take(n, 2), *v = a.take(n, 3), *g = a.take(n, 4);
    for (int64_t i = 0; i < n; ++i) v[i] *= v[i];
    kernels.optimizer.adamw({.count = n,
                             .grad = g,
                             .p = p,
                             .m = m,
                             .v = v,
                             .grad_scale = 0.5f,
                             .lr = 0.1f,
                             .beta1 = 0.9f,
                             .beta2 = 0.99f,
                             .eps = 1e-3f,
                             .weight_decay = 0.1f,
                             .correction1 = 0.3f,
                             .correction2 = 0.2f});
    float* sums = a.take(3, 5);
    sums[0] = static_cast<float>(kernels.optimizer.sum_of_squares(n, g));
    sums[1] = kernels.matvec.sum(n, g);
    double squares = 0, sum = 0;
    for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(g[i]) * g[i], sum += g[i];
    EXPECT_NEAR(sums[0], squares, 1e-6 * squares);
    EXPECT_NEAR(sums[1], sum, 1e-4);
    kernels.narrow.add_column_sums(Arrays::kRows, n, a.take(Arrays::kRows * n, 6), n, a.take(n, 7));
  });
}

TEST_P(RowEnds, Conversions) {
  const simd::ConvertKernels& kernels = simd::kernels().convert;
  for (int64_t n = 1; n <= 70; ++n) {
    const std::vector<float> values = floats(random_values(n, 1));
    Guarded<float> x(values), back(n);
    Guarded<uint16_t> narrow(n), scaled(n);
    kernels.f32_to_f16(n, x.data(), narrow.data());
    kernels.f16_to_f32(n, narrow.data(), back.data());
    for (int64_t i = 0; i < n; ++i) EXPECT_NEAR(back.data()[i], x.data()[i], 1e-3 * std::fabs(x.data()[i]) + 1e-7);
    kernels.f32_to_bf16(n, x.data(), narrow.data());
    kernels.scaled_to_bf16(n, 1.0f, x.data(), scaled.data());
    EXPECT_EQ(scaled.values(), narrow.values());
    kernels.bf16_to_f32(n, narrow.data(), back.data());
    for (int64_t i = 0; i < n; ++i) EXPECT_NEAR(back.data()[i], x.data()[i], 4e-3 * std::fabs(x.data()[i]));
    kernels.scaled_to_bf16(n, 1.0f, x.data(), x.data());  // in place
  }
}

TEST_P(RowEnds, Int8) {
  const simd::NarrowKernels& kernels = simd::kernels().narrow;
  for (int64_t n = 1; n <= 70; ++n) {
    Guarded<float> x(floats(random_values(n, 1))), back(n), scales(floats(random_values(n, 2))),
        bias(floats(random_values(n, 3)));
    Guarded<int8_t> q(n);
    const float scale = kernels.to_int8(n, x.data(), q.data());
    kernels.from_int8(n, scale, q.data(), back.data());
    for (int64_t i = 0; i < n; ++i) EXPECT_NEAR(back.data()[i], x.data()[i], 0.501 * scale);
    std::vector<int32_t> sums;
    for (int64_t i = 0; i < n; ++i) sums.push_back(static_cast<int32_t>(1000 * x.data()[i]));
    Guarded<int32_t> guarded_sums(sums);
    Guarded<float> y(n, 2.0f);
    kernels.rescale(n, guarded_sums.data(), 0.25f, scales.data(), bias.data(), true, y.data());
    for (int64_t i = 0; i < n; ++i) {
      const double term = 0.25 * scales.data()[i] * sums[static_cast<std::size_t>(i)];
      EXPECT_NEAR(y.data()[i], 2.0 + bias.data()[i] + term, 1e-6 * (3 + std::fabs(term)));
    }
  }
}

// Weights, activations, biases and results of products of few and of many rows.
TEST_P(RowEnds, Products) {
  for (const int64_t in : {1, 5, 15, 16, 17, 33, 63}) {
    for (const int64_t out : {1, 3, 17, 40}) {
      Guarded<float> w(floats(random_values(out * in, 1))), bias(floats(random_values(out, 2))), scale(out);
      Guarded<uint16_t> bf16(out * in);
      Guarded<int8_t> int8(out * in);
      nn::to_bfloat16(w.data(), out, in, bf16.data(), 1);
      nn::to_int8(w.data(), out, in, int8.data(), scale.data(), 1);
      for (const nn::Weight& weight : {nn::Weight{nn::WeightType::kFloat32, w.data(), nullptr, out, in},
                                       nn::Weight{nn::WeightType::kBfloat16, bf16.data(), nullptr, out, in},
                                       nn::Weight{nn::WeightType::kInt8, int8.data(), scale.data(), out, in}}) {
        for (const int64_t rows : {1, 2, 5, 40}) {
          Guarded<float> x(floats(random_values(rows * in, 3))), y(rows * out, kNan);
          nn::linear({x.data(), in}, rows, weight, bias.data(), y.data(), out, false, 1);
          for (const float value : y.values()) ASSERT_TRUE(std::isfinite(value));
          if (weight.type == nn::WeightType::kInt8) continue;
          Guarded<float> dy(floats(random_values(rows * out, 4))), dx(rows * in, kNan), dw(out * in, kNan), dbias(out);
          nn::linear_backward({dy.data(), out}, {x.data(), in}, rows, weight, dx.data(), in, dw.data(), false,
                              dbias.data(), 1);
          for (const Guarded<float>* made : {&dx, &dw}) {
            for (const float value : made->values()) ASSERT_TRUE(std::isfinite(value));
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, RowEnds, testing::ValuesIn(simd::target_names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace deltanet::test
