#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

namespace deltanet {

namespace nb = nanobind;

inline std::size_t count(const std::vector<int64_t>& shape) {
  std::size_t size = 1;
  for (int64_t extent : shape) size *= static_cast<std::size_t>(extent);
  return size;
}

// A new NumPy array, aligned to cache lines and not initialized.
template <class T>
std::pair<nb::object, T*> new_array(const std::vector<int64_t>& shape) {
  constexpr std::align_val_t kAlignment{64};
  T* data = static_cast<T*>(::operator new(count(shape) * sizeof(T), kAlignment));
  nb::capsule owner(data, [](void* pointer) noexcept { ::operator delete(pointer, kAlignment); });
  const std::vector<std::size_t> extents(shape.begin(), shape.end());
  return {nb::cast(nb::ndarray<nb::numpy, T>(data, extents.size(), extents.data(), owner)), data};
}

}  // namespace deltanet
