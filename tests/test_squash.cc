// The polynomial for B = x^-s, s in [-1, 1], and its variants, against the power itself: every coefficient counts.

#include "recurrence/squash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace deltanet::test {
namespace {

// In the kernels' unit: s for tanh, s ln 2 for the fast squash.
double unit_of(const Spec& spec) { return spec.squash == Squash::kTanh ? 1.0 : std::numbers::ln2; }

double expected_B(const Spec& spec, double s) {
  switch (spec.range) {
    case Range::kSym:
      return std::pow(spec.x, -s);
    case Range::kAmplify:
      return std::pow(spec.x, (1 - s) / 2);
    case Range::kDampen:
      return std::pow(spec.x, -(1 + s) / 2);
  }
  return 0;
}

double polynomial(const simd::SquashCurve& curve, double s) {
  double sum = 0;
  for (const float coefficient : curve.coefficients) sum = sum * s + static_cast<double>(coefficient);
  return sum;
}

// What interpolation of exp(a s) at the nodes of Chebyshev leaves: e^a a^n / (n! 2^(n-1)).
double interpolation_error(double a, int terms) {
  return std::exp(a) * std::pow(a, terms) / (std::tgamma(terms + 1) * std::pow(2, terms - 1));
}

TEST(SquashCurve, IsThePowerToTheLastDigits) {
  // Seven terms at x = 2, the largest there is; the coefficients are floats, and their sum is 2 at most.
  const double bound = interpolation_error(std::numbers::ln2, simd::SquashCurve::kTerms) + 2 * 6e-8;
  for (const Squash squash : {Squash::kFast, Squash::kTanh}) {
    for (const Range range : {Range::kSym, Range::kAmplify, Range::kDampen}) {
      for (double x = 1; x <= 2; x += 1.0 / 64) {
        const Spec spec{.key = Precond::kStable, .squash = squash, .range = range, .x = x};
        const simd::SquashCurve curve = squash_curve(spec);
        double worst = 0;
        for (double s = -1; s <= 1; s += 1.0 / 256) {
          worst = std::max(worst, std::fabs(polynomial(curve, s * unit_of(spec)) - expected_B(spec, s)));
        }
        EXPECT_LE(worst, bound) << "x = " << x << ", range " << static_cast<int>(range);
        const double slope = -std::log(x) * (range == Range::kSym ? 1 : 0.5) / (unit_of(spec) * unit_of(spec));
        EXPECT_NEAR(curve.slope, slope, 1e-7 * std::fabs(slope));
      }
    }
  }
}

}  // namespace
}  // namespace deltanet::test
