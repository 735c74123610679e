// The short convolution on the memory of PyTorch's tensors, for deltanet/ops/_short_convolution.py, which gives
// addresses (0: absent) of dense float32 tensors that it keeps alive, and their sizes.

#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <vector>

#include "bindings.h"
#include "deltanet/deltanet.h"
#include "interrupts.h"

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

// Of x, weight, bias and initial state, or of y and final state.
template <class Group>
Group inputs_at(const std::vector<Address>& from, const Sizes& s) {
  return {.x = at(from.at(0), {s.B, s.T, s.C}),
          .weight = at(from.at(1), {s.C, s.W}),
          .bias = at(from.at(2), {s.C}),
          .initial = at(from.at(3), {s.N, s.W - 1, s.C})};
}

template <class Group>
Group outputs_at(const std::vector<Address>& from, const Sizes& s) {
  return {.y = at(from.at(0), {s.B, s.T, s.C}), .final = at(from.at(1), {s.N, s.W - 1, s.C})};
}

Sizes sizes(const std::vector<int64_t>& list) { return {list.at(0), list.at(1), list.at(2), list.at(3), list.at(4)}; }

void forward_at(const std::vector<Address>& in, const std::vector<Address>& out, const std::vector<int64_t>& shape,
                const std::vector<int64_t>& cu_seqlens, bool silu, int threads) {
  ShortConvInputs inputs = inputs_at<ShortConvInputs>(in, sizes(shape));
  inputs.cu_seqlens = cu_seqlens;
  inputs.silu = silu;
  const ShortConvOutputs outputs = outputs_at<ShortConvOutputs>(out, sizes(shape));
  without_gil([&](Interrupt&) { short_conv_forward(inputs, outputs, threads); });
}

void backward_at(const std::vector<Address>& in, const std::vector<Address>& upstream,
                 const std::vector<Address>& grads, const std::vector<int64_t>& shape,
                 const std::vector<int64_t>& cu_seqlens, bool silu, int threads) {
  ShortConvInputs inputs = inputs_at<ShortConvInputs>(in, sizes(shape));
  inputs.cu_seqlens = cu_seqlens;
  inputs.silu = silu;
  const auto gradients_of_outputs = outputs_at<ShortConvOutputGradients>(upstream, sizes(shape));
  const auto gradients = inputs_at<ShortConvInputGradients>(grads, sizes(shape));
  without_gil([&](Interrupt&) { short_conv_backward(inputs, gradients_of_outputs, gradients, threads); });
}

}  // namespace

void bind_short_conv(nb::module_& m) {
  m.def("short_conv_forward", forward_at);
  m.def("short_conv_backward", backward_at);
}

}  // namespace deltanet
