#include "base/statistics.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace deltanet {
namespace {

// The probability of [-t, t] for t = sqrt(n) tan(angle) and n degrees of freedom, a finite sum for whole n.
double probability_within(double angle, int n) {
  const double c = std::cos(angle);
  double term = n % 2 == 1 ? c : 1, sum = n == 1 ? 0 : term;
  for (int i = n % 2 == 1 ? 3 : 2; i < n; i += 2) {
    term *= c * c * (i - 1) / i;
    sum += term;
  }
  return n % 2 == 1 ? 2 / std::numbers::pi * (angle + std::sin(angle) * sum) : std::sin(angle) * sum;
}

}  // namespace

double student_t_quantile(int degrees_of_freedom) {
  double low = 0, high = std::numbers::pi / 2;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (probability_within(middle, degrees_of_freedom) < 0.95 ? low : high) = middle;
  }
  return std::sqrt(static_cast<double>(degrees_of_freedom)) * std::tan(low);
}

MeanInterval mean_interval(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  MeanInterval result{0, std::numeric_limits<double>::infinity()};
  for (const double value : values) result.mean += value / n;
  if (values.size() < 2) return result;
  double squares = 0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  result.half_width = student_t_quantile(static_cast<int>(values.size()) - 1) * std::sqrt(squares / (n - 1) / n);
  return result;
}

}  // namespace deltanet
