#pragma once

#include <cmath>

#include "deltanet/rows.h"
#include "recurrence/autodiff.h"
#include "recurrence/divisors.h"

// The gains: c = f(alpha, beta, m) multiplies the value and the erase key, where m = e.w is the product of erase and
// write key, so that f m is the eigenvalue of the write. Normalizers of the write key are gains, too: scaling w is
// scaling the value and the erase key. One definition serves the engine (float) and the reference (float64 and its
// gradients); the derivatives stand below it.
//
// Where a quotient is 0/0 the key is zero and writes nothing, whatever the gain. It is fixed here so that no gradient
// passes through the guard: nlms and inv are 0 where m vanishes, efla is beta (its limit), and alpha_beta is 0 where
// its denominator vanishes (a decay that underflows). To vanish is to be smaller than every normal number of float32,
// 1.2e-38 (divisors.h): keys of less than 1.1e-19 write nothing, where 1/(k.k) would write 1e19 and more.

namespace deltanet {

inline bool reads_beta(Gain gain) { return gain != Gain::kOne && gain != Gain::kNlms; }
inline bool reads_m(Gain gain) { return gain != Gain::kOne && gain != Gain::kBeta; }

template <class T>
T gain_of(Gain gain, const T& alpha, const T& beta, const T& m) {
  using std::expm1;
  const T zero = 0.0f, one = 1.0f;
  switch (gain) {
    case Gain::kOne:
      return one;
    case Gain::kBeta:
      return beta;
    case Gain::kLonghorn:
      return quotient(beta, T(one + beta * m));
    case Gain::kNlms:
      return vanishes(number_of(m)) ? zero : quotient(one, m);
    case Gain::kEfla:
      return vanishes(number_of(m)) ? beta : quotient(T(-expm1(-(beta * m))), m);
    case Gain::kInv:
      return vanishes(number_of(m)) ? zero : quotient(beta, m);
    case Gain::kOnePlus:
      return quotient(beta, T(one + m));
    case Gain::kAlphaBeta: {
      const T denominator = alpha + beta * m;
      return vanishes(number_of(denominator)) ? zero : quotient(beta, denominator);
    }
  }
  return beta;
}

// Derivatives by log alpha, beta and m; `c` is the gain itself.
struct GainSlope {
  double log_alpha = 0, beta = 0, m = 0;
};

inline GainSlope gain_slope(Gain gain, double alpha, double beta, double m, double c) {
  switch (gain) {
    case Gain::kOne:
      return {};
    case Gain::kBeta:
      return {.beta = 1};
    case Gain::kLonghorn: {
      const double denominator = 1 + beta * m;
      return {.beta = quotient(1.0, denominator * denominator), .m = -c * c};
    }
    case Gain::kNlms:
      return {.m = -c * c};
    case Gain::kEfla: {
      const double rest = std::exp(-beta * m);
      if (vanishes(m)) return {.beta = rest};
      // (beta exp(-beta m) - c)/m loses all digits for small keys; its series there is -beta^2/2 + beta^3 m/3.
      const double slope = std::fabs(m * beta) < 1e-4 ? beta * beta * (-0.5 + beta * m / 3)
                                                      : (beta * rest + std::expm1(-beta * m) / m) / m;
      return {.beta = rest, .m = slope};
    }
    case Gain::kInv:
      return vanishes(m) ? GainSlope{} : GainSlope{.beta = quotient(1.0, m), .m = -c / m};
    case Gain::kOnePlus:
      return {.beta = quotient(1.0, 1 + m), .m = -c / (1 + m)};
    case Gain::kAlphaBeta: {
      const double denominator = alpha + beta * m;
      if (vanishes(denominator)) return {};
      return {.log_alpha = -c * alpha / denominator, .beta = quotient(alpha, denominator * denominator), .m = -c * c};
    }
  }
  return {};
}

}  // namespace deltanet
