#include "recurrence/squash.h"

#include <array>
#include <cmath>
#include <numbers>

namespace deltanet {

// Interpolates exp(bias + slope s) at the Chebyshev nodes of [-1, 1] (Newton's divided differences, expanded).
simd::SquashCurve squash_curve(const Spec& spec) {
  constexpr int kTerms = simd::SquashCurve::kTerms;
  const double log_x = std::log(spec.x);
  double bias = 0.0, slope = -log_x;
  if (spec.range != Range::kSym) {
    slope = -0.5 * log_x;
    bias = spec.range == Range::kAmplify ? 0.5 * log_x : -0.5 * log_x;
  }

  const int terms = std::fabs(slope) <= std::log(1.5) + 1e-12 ? kTerms - 1 : kTerms;
  std::array<double, kTerms> nodes{}, differences{};
  for (int i = 0; i < terms; ++i) {
    nodes[i] = std::cos(std::numbers::pi * (i + 0.5) / terms);
    differences[i] = std::exp(bias + slope * nodes[i]);
  }
  for (int order = 1; order < terms; ++order) {
    for (int i = terms - 1; i >= order; --i) {
      differences[i] = (differences[i] - differences[i - 1]) / (nodes[i] - nodes[i - order]);
    }
  }
  // Horner's rule on Newton's form: power[i] is the coefficient of s^i.
  std::array<double, kTerms> power{};
  for (int i = terms - 1; i >= 0; --i) {
    for (int j = terms - 1; j > 0; --j) power[j] = power[j - 1] - nodes[i] * power[j];
    power[0] = differences[i] - nodes[i] * power[0];
  }

  // In the unit of the kernel: s for tanh, s ln 2 for the fast squash, whose s' comes out multiplied by (ln 2)^2.
  const double unit = spec.squash == Squash::kTanh ? 1.0 : std::numbers::ln2;
  simd::SquashCurve curve{};
  for (int i = 0; i < kTerms; ++i) {
    curve.coefficients[kTerms - 1 - i] = static_cast<float>(power[i] / std::pow(unit, i));
  }
  curve.slope = static_cast<float>(slope / (unit * unit));
  return curve;
}

}  // namespace deltanet
