#pragma once

#include <cmath>
#include <limits>

// Divisors that are made of squares of keys, at the ends of what float32 holds.

namespace deltanet {

// Does the divisor count as zero? One that float32 has no normal number for has lost its digits, and its inverse may be
// none.
inline bool vanishes(double divisor) { return std::fabs(divisor) < std::numeric_limits<float>::min(); }

// x / divisor; NaN where the divisor has overflowed, for 0 would write nothing in silence.
template <class Float>
Float quotient(Float x, Float divisor) {
  return std::isinf(divisor) ? std::numeric_limits<Float>::quiet_NaN() : x / divisor;
}

}  // namespace deltanet
