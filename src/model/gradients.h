#pragma once

#include "model/layout.h"

namespace deltanet {

// Where a backward pass leaves the gradients of the parameters, in the places that a Layout gives them. Gaps between
// parameters are not written: they should be zeros, since sums over all gradients read them.
struct Gradients {
  float* matrices;
  float* vectors;
  bool add;  // to what is there; otherwise it is replaced

  float* matrix(const MatrixAt& at) const { return matrices + at.offset; }
  float* vector(int64_t offset) const { return offset == kAbsent ? nullptr : vectors + offset; }
};

}  // namespace deltanet
