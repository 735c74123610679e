// The short causal convolution, a few tokens at a time over all channels.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/layers_conv.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"
#include "simd/layers-inl.h"
#include "simd/modules.h"

HWY_BEFORE_NAMESPACE();
namespace deltanet::simd {
namespace HWY_NAMESPACE {
namespace {

// Code for the width of almost all models; kAny reads the width at run time.
constexpr int kUsual = 4, kAny = 0;

template <int kWidth>
constexpr int kMaxTaps = kWidth == kAny ? kConvMaxWidth : kWidth;

// The weights of the channels at these lanes, tap by tap. They are stored channel by channel.
template <int kWidth>
HWY_INLINE void load_taps(const float* weight, int width, int64_t channels, Vec (&taps)[kMaxTaps<kWidth>]) {
  const D d;
  if constexpr (kWidth == kUsual) {
    if (channels == kLanes) return hn::LoadInterleaved4(d, weight, taps[0], taps[1], taps[2], taps[3]);
  }
  alignas(64) float by_tap[kMaxTaps<kWidth>][kLanes] = {};
  for (int64_t c = 0; c < channels; ++c) {
    for (int j = 0; j < width; ++j) by_tap[j][c] = weight[c * width + j];
  }
  for (int j = 0; j < width; ++j) taps[j] = hn::Load(d, by_tap[j]);
}

HWY_INLINE int64_t count_of(Whole) { return kLanes; }
HWY_INLINE int64_t count_of(Part part) { return part.count; }

// The tokens of a group share the weights and all but one of their input rows.
template <int kWidth, int kTokens, bool kGrad>
void group(const ConvGroup& p) {
  const D d;
  const int width = kWidth == kAny ? static_cast<int>(p.width) : kWidth;
  for_lanes(p.channels, [&](int64_t i, auto lanes) DELTANET_BODY {
    Vec taps[kMaxTaps<kWidth>], x[kMaxTaps<kWidth> + kTokens - 1], pre[kTokens];
    load_taps<kWidth>(p.weight + i * width, width, count_of(lanes), taps);
    if (p.reversed) {
      for (int j = 0; j < width / 2; ++j) {
        const Vec other = taps[j];
        taps[j] = taps[width - 1 - j];
        taps[width - 1 - j] = other;
      }
    }
    for (int row = 0; row < width + kTokens - 1; ++row) x[row] = p.x[row] ? lanes.load(p.x[row] + i) : hn::Zero(d);
    if (p.x_ahead) {
      for (int t = 0; t < kTokens; ++t) ask_for(p.x[width - 1 + t] + i, p.x_ahead);
    }
    const Vec bias = p.bias ? lanes.load(p.bias + i) : hn::Zero(d);
    for (int t = 0; t < kTokens; ++t) {
      pre[t] = bias;
      for (int j = 0; j < width; ++j) pre[t] = hn::MulAdd(taps[j], x[t + j], pre[t]);
    }
    if constexpr (kGrad) {
      for (int t = 0; t < kTokens; ++t) {
        const Vec dy = lanes.load(p.dy[t] + i);
        if (p.dy_ahead) ask_for(p.dy[t] + i, p.dy_ahead);
        pre[t] = p.silu ? hn::Mul(dy, silu_slope(pre[t], sigmoid_of(pre[t]))) : dy;
        lanes.store(pre[t], p.y[t] + i);
      }
      if (p.dweight) {
        for (int j = 0; j < width; ++j) {
          float* at = p.dweight + j * p.ld_dweight + i;
          Vec sum = lanes.load(at);
          for (int t = 0; t < kTokens; ++t) sum = hn::MulAdd(pre[t], x[t + j], sum);
          lanes.store(sum, at);
        }
      }
      if (p.dbias) {
        Vec sum = lanes.load(p.dbias + i);
        for (int t = 0; t < kTokens; ++t) sum = hn::Add(sum, pre[t]);
        lanes.store(sum, p.dbias + i);
      }
    } else {
      for (int t = 0; t < kTokens; ++t) lanes.store(p.silu ? silu_of(pre[t]) : pre[t], p.y[t] + i);
    }
  });
}

template <int kWidth, bool kGrad>
void tokens_of(const ConvGroup& p) {
  if (p.tokens == kConvTokens) return group<kWidth, kConvTokens, kGrad>(p);
  ConvGroup one = p;
  for (int64_t t = 0; t < p.tokens; ++t) {
    for (int64_t j = 0; j < p.width; ++j) one.x[j] = p.x[t + j];
    one.y[0] = p.y[t];
    one.dy[0] = p.dy[t];
    group<kWidth, 1, kGrad>(one);
  }
}

template <bool kGrad>
void any_width(const ConvGroup& p) {
  return p.width == kUsual ? tokens_of<kUsual, kGrad>(p) : tokens_of<kAny, kGrad>(p);
}

}  // namespace

void fill_layers_conv(Kernels& table) {
  table.layers.conv = any_width<false>;
  table.layers.conv_grad = any_width<true>;
}

}  // namespace HWY_NAMESPACE
}  // namespace deltanet::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltanet::simd {
HWY_EXPORT(fill_layers_conv);
void add_layers_conv(Kernels& table) { HWY_DYNAMIC_DISPATCH(fill_layers_conv)(table); }
}  // namespace deltanet::simd
#endif
