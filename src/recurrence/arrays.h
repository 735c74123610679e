#pragma once

#include <cstdint>

#include "deltanet/recurrence.h"
#include "deltanet/reference.h"

// The fast path and random data in terms of Arrays, so that verification and tests can hold it against the reference.

namespace deltanet {

// forward() on inputs rounded to float; returns every output of the row. Memory that forward() fails to write shows as
// NaN.
Arrays forward_arrays(const Spec& spec, const Arrays& inputs, const Options& options = {});

// backward() likewise; returns the gradient of every input.
Arrays backward_arrays(const Spec& spec, const Arrays& inputs, const Arrays& upstream, const Options& options = {});

// Every input that the row can read, in the ranges that a trained model produces: unit-sized q, k and v, decays between
// 0.5 and 1, gains in (0, 1), small initial states (for RLS P0 in place of the ridge), free keys near k. All values are
// floats, so that both paths see the same numbers.
Arrays random_inputs(const Spec& spec, const Shape& shape, uint64_t seed);

// Random gradients of every output.
Arrays random_upstream(const Spec& spec, const Shape& shape, uint64_t seed);

// ||x - y|| / ||y||, and ||x - y|| where y vanishes. NaN anywhere gives NaN.
double relative_error(const Array& x, const Array& y);

// The largest relative error over the arrays of `expected`; infinity where one is missing or has another shape.
double relative_error(const Arrays& actual, const Arrays& expected);

}  // namespace deltanet
