#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

namespace deltanet {

// A borrowed float tensor of rank 0 to 4 with strides counted in elements. The library never owns what a view points
// at; a view without data means "absent". Any strides are accepted; rows with a unit stride in the last dimension are
// fastest.
struct Tensor {
  static constexpr int kMaxRank = 4;

  float* data = nullptr;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape{};
  std::array<int64_t, kMaxRank> stride{};

  Tensor() = default;

  // A dense row-major tensor.
  Tensor(float* values, std::initializer_list<int64_t> dims) : data(values), rank(static_cast<int>(dims.size())) {
    int axis = 0;
    for (int64_t extent : dims) shape[axis++] = extent;
    int64_t step = 1;
    for (axis = rank - 1; axis >= 0; --axis) {
      stride[axis] = step;
      step *= shape[axis];
    }
  }

  explicit operator bool() const { return data != nullptr; }

  int64_t size() const {
    int64_t count = 1;
    for (int axis = 0; axis < rank; ++axis) count *= shape[axis];
    return count;
  }
};

}  // namespace deltanet
