#pragma once

#include <string>

#include "deltanet/reference.h"

namespace deltanet::test {

// How far float32 may be from float64, entry by entry: the one place that tests of the recurrences take bounds from.
//
// The reference (recurrence/reference.h) runs in float64, which gives the values, and kDraws times in numbers with
// drawn rounding errors (rounded.h) and with the state of a chunkwise form (chunked_state.h), forward as well as
// backward. The root mean square of what these runs are off by is the error that rounding each operation once leaves in
// an entry.
//
// Why not sums of absolute values, which are the usual proof of a bound? The delta rule applies I - beta k k^T to the
// state, which forgets errors; their absolute values would grow by I + beta |k||k|^T, exponentially in the length. Why
// not the norm of the result? It says nothing of results that nearly cancel, and nearly nothing of small entries.
struct Expected {
  Arrays values;
  Arrays errors;  // root mean squares
};

Expected expected_outputs(const Spec& spec, const Arrays& inputs);
Expected expected_gradients(const Spec& spec, const Arrays& inputs, const Arrays& upstream);

// The entry furthest beyond its bound in any array of `expected`, or an array that is missing, described; empty if
// there is none. The bound is kFactor errors, at least those of rounding the value itself.
std::string first_difference(const Arrays& actual, const Expected& expected);

// An error divided by its estimate from ten draws is distributed as Student's t with ten degrees of freedom: beyond 32
// once in 5e10 entries, and beyond 16 once in 5e7, should the functions of the fast path round twice as coarsely as a
// draw. In 10^4 random problems nothing was beyond 15.
inline constexpr int kDraws = 10;
inline constexpr double kFactor = 32;

}  // namespace deltanet::test
