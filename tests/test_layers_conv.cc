// The short convolution: widths, packed sequences, states and their gradients.

#include <gtest/gtest.h>

#include <cmath>

#include "layers.h"
#include "nn/short_conv.h"

namespace deltanet::test {
namespace {

constexpr double kHeld = 0.5;  // what accumulated gradients hold before the call

struct Shape {
  int64_t C, W;
  std::vector<int64_t> offsets;
  bool silu = true, bias = true, states = true;

  int64_t rows() const { return offsets.back(); }
  int64_t N() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t state_size() const { return states ? N() * (W - 1) * C : 0; }
};

// y, and the final states behind it. inputs: x, weight, bias, initial states
Values reference(const Shape& s, const std::vector<Values>& in) {
  const auto at = [](const Values& v, int64_t i) { return v[static_cast<size_t>(i)]; };
  Values y, final;
  for (int64_t n = 0; n < s.N(); ++n) {
    const int64_t first = s.offsets[static_cast<size_t>(n)], last = s.offsets[static_cast<size_t>(n) + 1];
    const auto input = [&](int64_t t, int64_t c) {
      if (t >= first) return at(in[0], t * s.C + c);
      return s.states ? at(in[3], (n * (s.W - 1) + s.W - 1 + t - first) * s.C + c) : 0.0;
    };
    for (int64_t t = first; t < last; ++t) {
      for (int64_t c = 0; c < s.C; ++c) {
        double pre = s.bias ? at(in[2], c) : 0.0;
        for (int64_t j = 0; j < s.W; ++j) pre += at(in[1], c * s.W + j) * input(t - (s.W - 1) + j, c);
        y.push_back(s.silu ? pre / (1.0 + std::exp(-pre)) : pre);
      }
    }
    for (int64_t i = 0; i < s.W - 1; ++i) {
      for (int64_t c = 0; c < s.C; ++c) final.push_back(input(last - (s.W - 1) + i, c));
    }
  }
  return joined(y, final);
}

Layer conv_layer(const Shape& s) {
  const int64_t C = s.C, W = s.W, rows = s.rows();
  return {{random_values(rows * C, 1), random_values(C * W, 2), s.bias ? random_values(C, 3) : Values(),
           random_values(s.state_size(), 4)},
          [=](const std::vector<Values>& in) { return reference(s, in); },
          [=](const std::vector<Values>& in, const Values& upstream, int threads) {
            const int64_t kept = s.N() * (W - 1) * C;
            const auto cut = upstream.begin() + rows * C;
            Slice x(rows, C, in[0]), y(rows, C), dy(rows, C, Values(upstream.begin(), cut)), dx(rows, C);
            const std::vector<float> w = floats(in[1]), bias = floats(in[2]), initial = floats(in[3]);
            const std::vector<float> dfinal = floats(Values(cut, upstream.end()));
            const float held = static_cast<float>(kHeld);
            std::vector<float> final(static_cast<size_t>(kept), NAN), dw(w.size(), held), dbias(bias.size(), held),
                dinitial(initial.size(), NAN);
            const nn::ShortConv conv{C, W, w.data(), s.bias ? bias.data() : nullptr, s.silu};
            const float* start = s.states ? initial.data() : nullptr;
            nn::short_conv_forward(conv, s.offsets, x.rows(), start, y.rows(), final.data(), threads);
            nn::short_conv_backward(
                conv, s.offsets, x.rows(), start, dy.rows(), dfinal.data(),
                {dx.rows(), dw.data(), s.bias ? dbias.data() : nullptr, s.states ? dinitial.data() : nullptr}, threads);
            return LayerResult{
                joined(y.values(), doubles(final)),
                {dx.values(), minus(doubles(dw), kHeld), minus(doubles(dbias), kHeld), doubles(dinitial)}};
          }};
}

// Shorter than the state, empty, one token, several groups with a remainder.
const std::vector<int64_t> kPacked = {0, 2, 2, 3, 20, 21, 25, 25};

class ShortConv : public testing::TestWithParam<int64_t> {};

TEST_P(ShortConv, EqualsReference) { check_layer(conv_layer({7, GetParam(), kPacked})); }
TEST_P(ShortConv, EqualsReferenceWithoutStates) {
  check_layer(conv_layer({7, GetParam(), kPacked, true, true, false}));
}
TEST_P(ShortConv, EqualsReferenceWithoutSiluAndBias) {
  check_layer(conv_layer({20, GetParam(), kPacked, false, false}));
}

INSTANTIATE_TEST_SUITE_P(W, ShortConv, testing::Range<int64_t>(1, 9),
                         [](const auto& test) { return std::to_string(test.param); });

class ShortConvChannels : public testing::TestWithParam<int64_t> {};

TEST_P(ShortConvChannels, EqualsReference) { check_layer(conv_layer({GetParam(), 4, {0, 1, 8}})); }

INSTANTIATE_TEST_SUITE_P(C, ShortConvChannels, testing::Values(1, 7, 16, 60, 128, 300),
                         [](const auto& test) { return std::to_string(test.param); });

// Blocks of tokens and panels of channels, with sequences that begin and end anywhere in them.
TEST(ShortConv, BlocksAddUpOnAnyNumberOfThreads) {
  check_blocks(conv_layer({600, 4, {0, 63, 64, 66, 130, 400, 400, 401}}));
  check_blocks(conv_layer({260, 8, {0, 700}}));
  check_blocks(conv_layer({260, 3, {0, 64, 128, 192, 256, 700}}));
}

// A prompt in pieces, then token by token, with the state updated where it lies.
TEST(ShortConv, CarriesItsStateFromCallToCall) {
  const int64_t C = 40, T = 30;
  for (const int64_t W : {1, 2, 4, 8}) {
    const Values input = random_values(T * C, 1);
    const std::vector<float> w = floats(random_values(C * W, 2)), start = floats(random_values((W - 1) * C, 3));
    const nn::ShortConv conv{C, W, w.data(), nullptr, true};
    for_every_target([&] {
      Slice x(T, C, input), whole(T, C), parts(T, C);
      std::vector<float> final(start.size()), state = start;
      nn::short_conv_forward(conv, std::vector<int64_t>{0, T}, x.rows(), start.data(), whole.rows(), final.data(), 1);
      for (int64_t t = 0; t < T;) {
        const int64_t length = t == 0 ? 11 : t < 20 ? 3 : 1;
        nn::short_conv_forward(conv, std::vector<int64_t>{0, length}, x.rows().from(t), state.data(),
                               parts.rows().from(t), state.data(), 1);
        t += length;
      }
      EXPECT_EQ(parts.values(), whole.values()) << "W = " << W;
      EXPECT_EQ(state, final) << "W = " << W;
    });
  }
}

// The gradient of a state handed from one call to the next: the backward passes chain.
TEST(ShortConv, ChainsGradientsThroughTheState) {
  const int64_t C = 24, W = 4, T = 10, cut = 2;  // the first piece is shorter than the state
  const Values input = random_values(T * C, 1), upstream = random_values(T * C, 5);
  const std::vector<float> w = floats(random_values(C * W, 2)), start = floats(random_values((W - 1) * C, 3));
  const nn::ShortConv conv{C, W, w.data(), nullptr, true};
  for_every_target([&] {
    Slice x(T, C, input), y(T, C), dy(T, C, upstream), whole(T, C), parts(T, C);
    std::vector<float> middle(start.size()), dmiddle(start.size()), dstart(start.size()), dstart_whole(start.size());
    std::vector<float> dw(w.size(), 0.0f), dw_whole(w.size(), 0.0f);
    const std::vector<int64_t> all{0, T}, head{0, cut}, tail{0, T - cut};
    nn::short_conv_backward(conv, all, x.rows(), start.data(), dy.rows(), nullptr,
                            {whole.rows(), dw_whole.data(), nullptr, dstart_whole.data()}, 1);
    nn::short_conv_forward(conv, head, x.rows(), start.data(), y.rows(), middle.data(), 1);
    nn::short_conv_backward(conv, tail, x.rows().from(cut), middle.data(), dy.rows().from(cut), nullptr,
                            {parts.rows().from(cut), dw.data(), nullptr, dmiddle.data()}, 1);
    nn::short_conv_backward(conv, head, x.rows(), start.data(), dy.rows(), dmiddle.data(),
                            {parts.rows(), dw.data(), nullptr, dstart.data()}, 1);
    expect_close(parts.values(), whole.values(), 1e-6, 2e-6, "dx");
    expect_close(doubles(dw), doubles(dw_whole), 1e-6, 5e-6, "dw");
    expect_close(doubles(dstart), doubles(dstart_whole), 1e-6, 2e-6, "dstart");
  });
}

}  // namespace
}  // namespace deltanet::test
