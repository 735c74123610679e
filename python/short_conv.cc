// The short convolution on the memory of PyTorch's tensors, for deltanet/ops/_short_convolution.py, which gives
// addresses (0: absent) of dense float32 tensors that it keeps alive, and their sizes.

#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <vector>

#include "bindings.h"
#include "deltanet/deltanet.h"

namespace deltanet {
namespace {

namespace nb = nanobind;

using Address = std::uintptr_t;

struct Sizes {
  int64_t B, T, C, W, N;
};

Tensor at(Address address, std::initializer_list<int64_t> shape) {
  return {reinterpret_cast<float*>(address), shape};  // NOLINT(performance-no-int-to-ptr)
}

struct Addresses {
  Address x, weight, bias, state;
};

ShortConvInputs inputs_at(const Addresses& from, const Sizes& s) {
  ShortConvInputs inputs;
  inputs.x = at(from.x, {s.B, s.T, s.C});
  inputs.weight = at(from.weight, {s.C, s.W});
  inputs.bias = at(from.bias, {s.C});
  inputs.initial = at(from.state, {s.N, s.W - 1, s.C});
  return inputs;
}

ShortConvOutputs outputs_at(Address y, Address final, const Sizes& s) {
  return {at(y, {s.B, s.T, s.C}), at(final, {s.N, s.W - 1, s.C})};
}

Addresses addresses(const std::vector<Address>& list) { return {list.at(0), list.at(1), list.at(2), list.at(3)}; }

Sizes sizes(const std::vector<int64_t>& list) { return {list.at(0), list.at(1), list.at(2), list.at(3), list.at(4)}; }

void forward_at(const std::vector<Address>& in, const std::vector<Address>& out, const std::vector<int64_t>& shape,
                const std::vector<int64_t>& cu_seqlens, bool silu, int threads) {
  const nb::gil_scoped_release unlocked;
  ShortConvInputs inputs = inputs_at(addresses(in), sizes(shape));
  inputs.cu_seqlens = cu_seqlens;
  inputs.silu = silu;
  short_conv_forward(inputs, outputs_at(out.at(0), out.at(1), sizes(shape)), threads);
}

void backward_at(const std::vector<Address>& in, const std::vector<Address>& upstream,
                 const std::vector<Address>& grads, const std::vector<int64_t>& shape,
                 const std::vector<int64_t>& cu_seqlens, bool silu, int threads) {
  const nb::gil_scoped_release unlocked;
  ShortConvInputs inputs = inputs_at(addresses(in), sizes(shape));
  inputs.cu_seqlens = cu_seqlens;
  inputs.silu = silu;
  short_conv_backward(inputs, outputs_at(upstream.at(0), upstream.at(1), sizes(shape)),
                      inputs_at(addresses(grads), sizes(shape)), threads);
}

}  // namespace

void bind_short_conv(nb::module_& m) {
  m.def("short_conv_forward", forward_at);
  m.def("short_conv_backward", backward_at);
}

}  // namespace deltanet
