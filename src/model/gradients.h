#pragma once

#include <vector>

#include "model/layout.h"

namespace deltanet {

// What the gradients are multiplied by: those of the loss of a target, and what use_l2warp adds for each token.
struct LossScale {
  float target = 1.0f, token = 0.0f;
};

inline LossScale mean_of(int64_t targets, int64_t tokens) {
  return {static_cast<float>(1.0 / static_cast<double>(targets)),
          static_cast<float>(1.0 / static_cast<double>(tokens))};
}

inline constexpr float kL2WarpPenalty = 1e-4f;  // upstream's

// Where a backward pass leaves the gradients of the parameters, in the places that a Layout gives them. Gaps between
// parameters are not written: they should be zeros, since sums over all gradients read them.
struct Gradients {
  float* matrices;
  float* vectors;
  bool add;  // to what is there; otherwise it is replaced

  float* matrix(const MatrixAt& at) const { return matrices + at.offset; }
  float* vector(int64_t offset) const { return offset == kAbsent ? nullptr : vectors + offset; }
};

// Room for the gradients of all parameters, zeros at first: where they are summed, and what an optimizer reads.
struct GradientArrays {
  GradientArrays() = default;
  explicit GradientArrays(const Layout& layout) { resize(layout); }
  void resize(const Layout& layout) {
    matrices.resize(static_cast<std::size_t>(layout.matrices_size()));
    vectors.resize(static_cast<std::size_t>(layout.vectors_size()));
  }
  Gradients added() { return {.matrices = matrices.data(), .vectors = vectors.data(), .add = true}; }
  Gradients replaced() { return {.matrices = matrices.data(), .vectors = vectors.data(), .add = false}; }

  std::vector<float> matrices, vectors;
};

}  // namespace deltanet
