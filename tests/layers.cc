#include "layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/arena.h"
#include "deltanet/runtime.h"

namespace deltanet::test {
namespace {

double dot(const Values& a, const Values& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

double largest(const Values& values) {
  double most = 0.0;
  for (const double v : values) most = std::max(most, std::abs(v));
  return most;
}

// The gradient of sum(dy * reference(inputs)) in one of the inputs.
Values numeric_gradient(const Layer& layer, size_t which, const Values& dy) {
  constexpr double kStep = 1e-4;
  std::vector<Values> inputs = layer.inputs;
  Values gradient;
  for (double& x : inputs[which]) {
    const double at = x;
    x = at + kStep;
    const double above = dot(dy, layer.reference(inputs));
    x = at - kStep;
    gradient.push_back((above - dot(dy, layer.reference(inputs))) / (2.0 * kStep));
    x = at;
  }
  return gradient;
}

void expect_same(const LayerResult& got, const LayerResult& want, int threads) {
  EXPECT_EQ(got.y, want.y) << threads << " threads";
  EXPECT_EQ(got.gradients, want.gradients) << threads << " threads";
}

}  // namespace

Values random_values(int64_t count, uint32_t seed, double scale) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(0.0, scale);
  Values values(static_cast<size_t>(count));
  for (double& v : values) v = static_cast<float>(normal(engine));
  return values;
}

std::vector<float> floats(const Values& values) {
  std::vector<float> out;
  for (const double v : values) out.push_back(static_cast<float>(v));
  return out;
}

Values doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

Slice::Slice(int64_t rows, int64_t n, const Values& values)
    : count_(rows),
      n_(n),
      ld_(n + kBetween),
      buffer_(static_cast<size_t>(kBefore + rows * ld_), std::numeric_limits<float>::quiet_NaN()) {
  for (size_t i = 0; i < values.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    this->rows().row(at / n)[at % n] = static_cast<float>(values[i]);
  }
}

Values Slice::values() const {
  Values values;
  for (int64_t i = 0; i < static_cast<int64_t>(buffer_.size()); ++i) {
    const double v = buffer_[static_cast<size_t>(i)];
    const bool inside = i >= kBefore && (i - kBefore) % ld_ < n_ && (i - kBefore) / ld_ < count_;
    if (inside) {
      values.push_back(v);
    } else {
      EXPECT_TRUE(std::isnan(v)) << "written outside of the rows, at " << i;
    }
  }
  return values;
}

Values minus(Values values, double amount) {
  for (double& v : values) v -= amount;
  return values;
}

Values joined(Values first, const Values& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

void expect_close(const Values& got, const Values& want, double relative, double absolute, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(got[i] - want[i]), allowed = relative * std::abs(want[i]) + absolute;
    // Written so that NaN fails.
    if (!(error <= allowed)) {
      ADD_FAILURE() << what << "[" << i << "] = " << got[i] << ", expected " << want[i] << " within " << allowed
                    << " on " << simd_target();
      return;
    }
  }
}

void for_every_target(const std::function<void()>& body) {
  Arena::set_poison(true);
  for (const std::string& target : simd_targets()) {
    set_simd_target(target);
    body();
  }
  set_simd_target("");
}

void check_layer(const Layer& layer, double tolerance) {
  const Values want = layer.reference(layer.inputs);
  const Values dy = random_values(static_cast<int64_t>(want.size()), 99);
  std::vector<Values> gradients(layer.inputs.size());
  for_every_target([&] {
    const LayerResult got = layer.run(layer.inputs, dy, 1);
    expect_close(got.y, want, tolerance, tolerance * 0.1, "y");
    ASSERT_EQ(got.gradients.size(), layer.inputs.size());
    for (size_t which = 0; which < gradients.size(); ++which) {
      if (got.gradients[which].empty()) continue;
      if (gradients[which].empty()) gradients[which] = numeric_gradient(layer, which, dy);
      expect_close(got.gradients[which], gradients[which], 0.0, tolerance * std::max(1.0, largest(gradients[which])),
                   "gradient of input " + std::to_string(which));
    }
    expect_same(layer.run(layer.inputs, dy, 2), got, 2);
  });
}

void check_blocks(const Layer& layer) {
  const Values want = layer.reference(layer.inputs);
  const Values dy = random_values(static_cast<int64_t>(want.size()), 99);
  for_every_target([&] {
    const LayerResult one = layer.run(layer.inputs, dy, 1);
    expect_close(one.y, want, 5e-6, 5e-7, "y");
    for (const int threads : {2, 3}) expect_same(layer.run(layer.inputs, dy, threads), one, threads);
    // One direction in the space of all inputs.
    constexpr double kStep = 1e-5;
    std::vector<Values> above = layer.inputs, below = layer.inputs;
    double expected_scale = 0.0, slope = 0.0;
    for (size_t which = 0; which < above.size(); ++which) {
      if (one.gradients[which].empty()) continue;
      const Values direction =
          random_values(static_cast<int64_t>(above[which].size()), 7 + static_cast<uint32_t>(which));
      for (size_t i = 0; i < direction.size(); ++i) {
        above[which][i] += kStep * direction[i];
        below[which][i] -= kStep * direction[i];
        expected_scale += std::pow(one.gradients[which][i] * direction[i], 2);
      }
      slope += dot(one.gradients[which], direction);
    }
    const double expected = (dot(dy, layer.reference(above)) - dot(dy, layer.reference(below))) / (2.0 * kStep);
    EXPECT_NEAR(slope, expected, 1e-5 * std::sqrt(expected_scale));
  });
}

}  // namespace deltanet::test
