#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <type_traits>

namespace deltanet {

// A borrowed float tensor of rank 0 to 4 with strides counted in elements: Tensor may be written to, ConstTensor is
// only read. The library never owns what a view points at; a view without data means "absent". Any strides are
// accepted; those with a unit stride in the last dimension are fastest.
template <class Float>
struct BasicTensor {
  static constexpr int kMaxRank = 4;

  Float* data = nullptr;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape{};
  std::array<int64_t, kMaxRank> stride{};

  BasicTensor() = default;

  // A dense row-major tensor.
  BasicTensor(Float* values, std::initializer_list<int64_t> dims)
      : BasicTensor(values, std::span<const int64_t>(dims.begin(), dims.size())) {}
  BasicTensor(Float* values, std::span<const int64_t> dims) : data(values), rank(static_cast<int>(dims.size())) {
    int64_t step = 1;
    for (int axis = rank - 1; axis >= 0; --axis) {
      shape[axis] = dims[axis];
      stride[axis] = step;
      step *= dims[axis];
    }
  }

  operator BasicTensor<const Float>() const requires(!std::is_const_v<Float>) {
    BasicTensor<const Float> view;
    view.data = data;
    view.rank = rank;
    view.shape = shape;
    view.stride = stride;
    return view;
  }

  explicit operator bool() const { return data != nullptr; }

  int64_t size() const {
    int64_t count = 1;
    for (int axis = 0; axis < rank; ++axis) count *= shape[axis];
    return count;
  }
};

using Tensor = BasicTensor<float>;
using ConstTensor = BasicTensor<const float>;

}  // namespace deltanet
