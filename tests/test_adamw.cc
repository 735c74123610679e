// AdamW against the same equations in float64, and norms against a plain sum.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/rng.h"
#include "train/adamw.h"

namespace deltanet {
namespace {

std::vector<float> normal_values(int64_t count, uint64_t seed, double size) {
  Rng rng(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(size * rng.normal());
  return values;
}

TEST(AdamW, FollowsTheEquationsInFloat64) {
  const AdamWOptions options{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
  constexpr int64_t kCount = (1 << 18) + 37;  // more than a block, and a tail
  std::vector<float> parameters = normal_values(kCount, 1, 0.5);
  std::vector<double> p(parameters.begin(), parameters.end()), m(kCount), v(kCount);
  AdamW adamw(kCount, options);
  for (int step = 1; step <= 20; ++step) {
    const double lr = 1e-2 / step, scale = step % 3 == 0 ? 0.25 : 1.0;
    const std::vector<float> gradients = normal_values(kCount, 100 + static_cast<uint64_t>(step), 0.1);
    adamw.step(parameters.data(), gradients.data(), static_cast<float>(scale), lr, 2);
    for (std::size_t i = 0; i < kCount; ++i) {
      const double g = scale * gradients[i];
      m[i] = options.beta1 * m[i] + (1 - options.beta1) * g;
      v[i] = options.beta2 * v[i] + (1 - options.beta2) * g * g;
      const double m_hat = m[i] / (1 - std::pow(options.beta1, step)),
                   v_hat = v[i] / (1 - std::pow(options.beta2, step));
      p[i] -= lr * (m_hat / (std::sqrt(v_hat) + options.eps) + options.weight_decay * p[i]);
    }
  }
  EXPECT_EQ(adamw.steps(), 20);
  double worst = 0;
  for (std::size_t i = 0; i < kCount; ++i) worst = std::max(worst, std::fabs(parameters[i] - p[i]));
  EXPECT_LT(worst, 2e-6);
}

TEST(AdamW, LeavesZerosAlone) {
  std::vector<float> parameters(100, 0.0f), gradients(100, 0.0f);
  AdamW adamw(100, {});
  for (int step = 0; step < 3; ++step) adamw.step(parameters.data(), gradients.data(), 1.0f, 1e-3, 1);
  for (const float value : parameters) EXPECT_EQ(value, 0.0f);
}

TEST(AdamW, GoesOnFromItsMoments) {
  std::vector<float> straight = normal_values(1000, 5, 1.0), stopped = straight;
  AdamW one(1000, {}), first(1000, {}), second(1000, {});
  const auto gradients = [](int step) { return normal_values(1000, 7 + static_cast<uint64_t>(step), 1.0); };
  for (int step = 0; step < 6; ++step) one.step(straight.data(), gradients(step).data(), 1.0f, 1e-3, 1);
  for (int step = 0; step < 3; ++step) first.step(stopped.data(), gradients(step).data(), 1.0f, 1e-3, 1);
  second.m() = first.m();
  second.v() = first.v();
  second.set_steps(first.steps());
  for (int step = 3; step < 6; ++step) second.step(stopped.data(), gradients(step).data(), 1.0f, 1e-3, 1);
  EXPECT_EQ(straight, stopped);
}

TEST(SquaredNorm, SameBitsForAnyThreadsAndNotFiniteIfAValueIsNot) {
  std::vector<float> values = normal_values((1 << 19) + 11, 3, 1.0);
  const auto count = static_cast<int64_t>(values.size());
  double sum = 0;
  for (const float value : values) sum += double{value} * double{value};
  EXPECT_NEAR(squared_norm(values.data(), count, 1), sum, 1e-5 * sum);
  EXPECT_EQ(squared_norm(values.data(), count, 1), squared_norm(values.data(), count, 3));
  values.back() = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(std::isfinite(squared_norm(values.data(), count, 2)));
}

}  // namespace
}  // namespace deltanet
