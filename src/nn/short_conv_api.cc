// The short convolution for users: sizes are checked here.

#include "deltanet/short_conv.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deltanet/error.h"
#include "nn/short_conv.h"
#include "simd/layers.h"

namespace deltanet {
namespace {

using Sizes = std::vector<int64_t>;

std::string text(const Sizes& sizes) {
  std::string list;
  for (int64_t size : sizes) list += (list.empty() ? "" : ",") + std::to_string(size);
  return "[" + list + "]";
}

void check_shape(std::string_view name, const ConstTensor& tensor, const Sizes& expected) {
  if (!tensor) return;
  const Sizes given(tensor.shape.begin(), tensor.shape.begin() + tensor.rank);
  if (given == expected) return;
  throw Error("[short_conv] " + std::string(name) + ": given shape " + text(given) + "; expected " + text(expected));
}

// The sequences as the tokens of one matrix.
struct Problem {
  nn::ShortConv conv;
  int64_t tokens = 0;
  Sizes token_shape, state_shape;
  std::vector<int64_t> offsets;
};

std::vector<int64_t> checked_offsets(const ShortConvInputs& inputs) {
  const int64_t B = inputs.x.shape[0], T = inputs.x.shape[1];
  if (inputs.cu_seqlens.empty()) {
    std::vector<int64_t> offsets;
    for (int64_t n = 0; n <= B; ++n) offsets.push_back(n * T);
    return offsets;
  }
  if (B != 1) throw Error("[short_conv] cu_seqlens: given with a batch of " + std::to_string(B) + "; expected 1");
  const auto offsets = inputs.cu_seqlens;
  if (offsets.front() != 0 || offsets.back() != T || !std::is_sorted(offsets.begin(), offsets.end())) {
    throw Error("[short_conv] cu_seqlens: expected offsets that rise from 0 to T = " + std::to_string(T));
  }
  return {offsets.begin(), offsets.end()};
}

Problem make_problem(const ShortConvInputs& inputs) {
  if (inputs.x.rank != 3 || inputs.weight.rank != 2) {
    throw Error("[short_conv] x, weight: given ranks " + std::to_string(inputs.x.rank) + ", " +
                std::to_string(inputs.weight.rank) + "; expected [B,T,C] and [C,W]");
  }
  for (const auto& [name, tensor] : {std::pair("x", inputs.x), std::pair("weight", inputs.weight)}) {
    if (!tensor && tensor.size() > 0)
      throw Error(std::string("[short_conv] ") + name + ": not given; expected an array");
  }
  const int64_t C = inputs.x.shape[2], W = inputs.weight.shape[1];
  if (W < 1 || W > simd::kConvMaxWidth) {
    throw Error("[short_conv] weight: given a width of " + std::to_string(W) + "; expected 1 to " +
                std::to_string(simd::kConvMaxWidth));
  }
  Problem problem;
  problem.offsets = checked_offsets(inputs);
  const auto N = static_cast<int64_t>(problem.offsets.size()) - 1;
  problem.conv = {.channels = C, .width = W, .weight = inputs.weight.data, .bias = inputs.bias.data};
  problem.conv.silu = inputs.silu;
  problem.tokens = inputs.x.shape[0] * inputs.x.shape[1];
  problem.token_shape = {inputs.x.shape[0], inputs.x.shape[1], C};
  problem.state_shape = {N, W - 1, C};
  check_shape("weight", inputs.weight, {C, W});
  check_shape("bias", inputs.bias, {C});
  check_shape("initial", inputs.initial, problem.state_shape);
  return problem;
}

}  // namespace

void short_conv_forward(const ShortConvInputs& inputs, const ShortConvOutputs& outputs, int threads) {
  const Problem problem = make_problem(inputs);
  check_shape("y", outputs.y, problem.token_shape);
  check_shape("final", outputs.final, problem.state_shape);
  const int64_t C = problem.conv.channels;
  nn::short_conv_forward(problem.conv, problem.offsets, {inputs.x.data, C}, inputs.initial.data, {outputs.y.data, C},
                         outputs.final.data, threads);
}

void short_conv_backward(const ShortConvInputs& inputs, const ShortConvOutputGradients& upstream,
                         const ShortConvInputGradients& gradients, int threads) {
  const Problem problem = make_problem(inputs);
  const int64_t C = problem.conv.channels;
  check_shape("dy", upstream.y, problem.token_shape);
  check_shape("dfinal", upstream.final, problem.state_shape);
  check_shape("dx", gradients.x, problem.token_shape);
  check_shape("dweight", gradients.weight, {C, problem.conv.width});
  check_shape("dbias", gradients.bias, {C});
  check_shape("dinitial", gradients.initial, problem.state_shape);
  const auto values = static_cast<std::size_t>(problem.tokens * C);
  const std::vector<float> zeros(upstream.y ? 0 : values);
  std::vector<float> unwanted(gradients.x ? 0 : values);  // dx, from which that of the initial state follows
  for (const Tensor& sum : {gradients.weight, gradients.bias}) {
    if (sum) std::fill_n(sum.data, sum.size(), 0.0f);
  }
  nn::short_conv_backward(problem.conv, problem.offsets, {inputs.x.data, C}, inputs.initial.data,
                          {upstream.y ? upstream.y.data : zeros.data(), C}, upstream.final.data,
                          {.dx = {gradients.x ? gradients.x.data : unwanted.data(), C},
                           .dweight = gradients.weight.data,
                           .dbias = gradients.bias.data,
                           .dinitial = gradients.initial.data},
                          threads);
}

}  // namespace deltanet
