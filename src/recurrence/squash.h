#pragma once

#include "deltanet/rows.h"
#include "simd/kernels.h"

namespace deltanet {

// The polynomial for B over the row's range: [1/x, x], [1, x] or [1/x, 1].
simd::SquashCurve squash_curve(const Spec& spec);

}  // namespace deltanet
