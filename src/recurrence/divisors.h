#pragma once

#include <cmath>
#include <limits>

#include "recurrence/autodiff.h"

// Divisors that are made of squares of keys, at the ends of what float32 holds.

namespace deltanet {

// Does the divisor count as zero? One that float32 has no normal number for has lost its digits, and its inverse may be
// none.
inline bool vanishes(double divisor) { return std::fabs(divisor) < std::numeric_limits<float>::min(); }

// x / divisor; NaN where the divisor has overflowed, for 0 would write nothing in silence.
template <class Number>
Number quotient(const Number& x, const Number& divisor) {
  return std::isinf(number_of(divisor)) ? Number(std::numeric_limits<float>::quiet_NaN()) : x / divisor;
}

}  // namespace deltanet
