// The public short convolution: the same as the layer of the models, and what it refuses.

#include <gtest/gtest.h>

#include <vector>

#include "deltanet/error.h"
#include "deltanet/short_conv.h"
#include "nn/short_conv.h"

namespace deltanet::test {
namespace {

std::vector<float> ramp(int64_t size) {
  std::vector<float> values;
  for (int64_t i = 0; i < size; ++i) values.push_back(static_cast<float>(i % 13) / 7.0f - 0.8f);
  return values;
}

// B = 2 sequences of T = 5 tokens, C = 3 channels, W = 4 taps.
struct Problem {
  std::vector<float> x = ramp(30), weight = ramp(12), initial = ramp(18), y = ramp(30), final = ramp(18);
  ShortConvInputs inputs{.x = {x.data(), {2, 5, 3}},
                         .weight = {weight.data(), {3, 4}},
                         .bias = {},
                         .initial = {initial.data(), {2, 3, 3}},
                         .cu_seqlens = {},
                         .silu = true};
  ShortConvOutputs outputs{.y = {y.data(), {2, 5, 3}}, .final = {final.data(), {2, 3, 3}}};
};

TEST(ShortConv, BatchesAreSequencesOfTheLayer) {
  Problem p;
  short_conv_forward(p.inputs, p.outputs);
  std::vector<float> y(30), final(18);
  const nn::ShortConv conv{.channels = 3, .width = 4, .weight = p.weight.data(), .bias = nullptr, .silu = true};
  const std::vector<int64_t> offsets{0, 5, 10};
  nn::short_conv_forward(conv, offsets, {p.x.data(), 3}, p.initial.data(), {y.data(), 3}, final.data(), 1);
  EXPECT_EQ(p.y, y);
  EXPECT_EQ(p.final, final);
}

TEST(ShortConv, GradientsAreOverwrittenAndAnAbsentUpstreamIsZero) {
  Problem p;
  std::vector<float> dx = ramp(30), dweight = ramp(12), dinitial = ramp(18);
  const ShortConvInputGradients gradients{.x = {dx.data(), {2, 5, 3}},
                                          .weight = {dweight.data(), {3, 4}},
                                          .bias = {},
                                          .initial = {dinitial.data(), {2, 3, 3}}};
  short_conv_backward(p.inputs, {}, gradients);
  EXPECT_EQ(dx, std::vector<float>(30));
  EXPECT_EQ(dweight, std::vector<float>(12));
  EXPECT_EQ(dinitial, std::vector<float>(18));
}

TEST(ShortConv, ResultsWithoutMemoryAreNotWritten) {
  Problem whole, p;
  short_conv_forward(whole.inputs, whole.outputs);
  p.outputs.y = {};
  short_conv_forward(p.inputs, p.outputs);
  EXPECT_EQ(p.final, whole.final);
  EXPECT_EQ(p.y, ramp(30));

  const std::vector<float> dy = ramp(30);
  const ShortConvOutputGradients upstream{.y = {dy.data(), {2, 5, 3}}, .final = {}};
  std::vector<float> dx(30), dweight(12), dinitial(18);
  ShortConvInputGradients all{.x = {dx.data(), {2, 5, 3}},
                              .weight = {dweight.data(), {3, 4}},
                              .bias = {},
                              .initial = {dinitial.data(), {2, 3, 3}}};
  short_conv_backward(p.inputs, upstream, all);
  std::vector<float> other_weight(12), other_initial(18);
  short_conv_backward(
      p.inputs, upstream,
      {.x = {}, .weight = {other_weight.data(), {3, 4}}, .bias = {}, .initial = {other_initial.data(), {2, 3, 3}}});
  EXPECT_EQ(other_weight, dweight);
  EXPECT_EQ(other_initial, dinitial);
  short_conv_backward(p.inputs, upstream, {});
}

template <class Change>
void expect_refused(const std::string& message, const Change& change) {
  Problem p;
  change(p);
  try {
    short_conv_forward(p.inputs, p.outputs);
    ADD_FAILURE() << "not refused: " << message;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  }
}

TEST(ShortConv, RefusesWhatDoesNotFit) {
  const std::vector<int64_t> packed{0, 5}, falling{0, 6, 3, 10};
  expect_refused("x, weight: given ranks 3, 1", [](Problem& p) { p.inputs.weight = {p.weight.data(), {12}}; });
  expect_refused("weight: not given", [](Problem& p) { p.inputs.weight.data = nullptr; });
  expect_refused("weight: given shape [4,3]", [](Problem& p) { p.inputs.weight = {p.weight.data(), {4, 3}}; });
  expect_refused("width of 9", [](Problem& p) { p.inputs.weight = {p.weight.data(), {3, 9}}; });
  expect_refused("bias: given shape [2]", [](Problem& p) { p.inputs.bias = {p.weight.data(), {2}}; });
  expect_refused("initial: given shape [2,4,3]", [](Problem& p) { p.inputs.initial = {p.x.data(), {2, 4, 3}}; });
  expect_refused("y: given shape [10,3]", [](Problem& p) { p.outputs.y = {p.y.data(), {10, 3}}; });
  expect_refused("cu_seqlens: given with a batch of 2", [&](Problem& p) { p.inputs.cu_seqlens = packed; });
  expect_refused("cu_seqlens: expected offsets", [&](Problem& p) {
    p.inputs.x = {p.x.data(), {1, 10, 3}};
    p.inputs.cu_seqlens = falling;
  });
}

}  // namespace
}  // namespace deltanet::test
