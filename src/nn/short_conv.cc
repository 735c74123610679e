#include "nn/short_conv.h"

#include <cassert>

#include "simd/kernels.h"

namespace deltanet::nn {
namespace {

using simd::kConvTokens;

// Tokens [begin, end) of one sequence, which is tokens [first, last).
struct Segment {
  int64_t sequence, first, last, begin, end;
};

// Calls body for the part of every sequence that lies in tokens [begin, end).
template <class Body>
void for_segments(std::span<const int64_t> offsets, int64_t begin, int64_t end, const Body& body) {
  // The sequence of token `begin`: empty ones before it end where it starts.
  auto next = std::upper_bound(offsets.begin(), offsets.end(), begin);
  while (begin < end) {
    const Segment segment{next - offsets.begin() - 1, next[-1], next[0], begin, std::min(end, next[0])};
    if (segment.begin < segment.end) body(segment);
    begin = segment.end;
    ++next;
  }
}

// The input of a sequence at a token that may lie before its start: x, the initial state, or null for zeros.
struct History {
  const ShortConv& conv;
  ConstView x;
  const float* initial;

  const float* row(const Segment& segment, int64_t r) const {
    if (r >= segment.first) return x.row(r);
    if (!initial) return nullptr;
    const int64_t kept = conv.width - 1;
    return initial + (segment.sequence * kept + kept + r - segment.first) * conv.channels;
  }
};

// A group of tokens from `begin` on, channels [column, column + channels) of everything.
simd::ConvGroup group_at(const History& history, const Segment& segment, int64_t begin, int64_t tokens, int64_t column,
                         int64_t channels) {
  const ShortConv& conv = history.conv;
  simd::ConvGroup group{};
  group.tokens = tokens;
  group.channels = channels;
  group.width = conv.width;
  group.weight = conv.weight + column * conv.width;
  group.bias = conv.bias ? conv.bias + column : nullptr;
  group.silu = conv.silu;
  for (int64_t i = 0; i < tokens + conv.width - 1; ++i) {
    const float* row = history.row(segment, begin - (conv.width - 1) + i);
    group.x[i] = row ? row + column : nullptr;
  }
  if (begin + 2 * kConvTokens <= segment.last) group.x_ahead = kConvTokens * history.x.ld;
  return group;
}

// Moves the last W-1 inputs of every sequence into its final state, which may be its initial one: rows move towards the
// front, so the order of the loop matters.
void keep_final(const ShortConv& conv, std::span<const int64_t> offsets, const History& history, float* final) {
  const int64_t kept = conv.width - 1;
  for (size_t n = 0; n + 1 < offsets.size(); ++n) {
    const Segment all{static_cast<int64_t>(n), offsets[n], offsets[n + 1], offsets[n], offsets[n + 1]};
    float* to = final + all.sequence * kept * conv.channels;
    for (int64_t i = 0; i < kept; ++i, to += conv.channels) {
      const float* from = history.row(all, all.last - kept + i);
      if (!from) {
        std::fill_n(to, conv.channels, 0.0f);
      } else if (from != to) {
        std::copy_n(from, conv.channels, to);
      }
    }
  }
}

// The backward pass of one segment in a panel of channels. The gradient of pre is computed token by token and kept in a
// ring of rows; a token of x appears in W tokens, so its gradient follows W-1 tokens behind.
class PanelBackward {
 public:
  PanelBackward(const History& history, ConstView dy, const ShortConvGrads& grads, int64_t column, int64_t channels,
                float* ring)
      : history_(history), dy_(dy), grads_(grads), column_(column), channels_(channels), ring_(ring) {}

  static int64_t ring_size(int64_t channels) { return kRing * channels; }

  // sums: where the gradients of the weights [W, C] and of the bias [C] are added
  void run(const Segment& segment, float* sums) const {
    const int64_t kept = history_.conv.width - 1;
    // Tokens of the next block see inputs of this one. They are computed here as well, but not counted for the weights.
    const int64_t last_reader = std::min(segment.last, segment.end + kept);
    int64_t done = segment.begin;  // tokens whose dx is set
    if (segment.begin == segment.first && grads_.dinitial) done -= kept;
    for (int64_t t = segment.begin; t < last_reader;) {
      const bool own = t < segment.end;
      const int64_t stop = std::min(t + kConvTokens, own ? segment.end : last_reader);
      add_pre(segment, t, stop, own ? sums : nullptr);
      t = stop;
      const int64_t ready = t == last_reader ? segment.end : std::min(segment.end, t - kept);
      for (; done < ready; done = next_stop(segment, done, ready))
        set_dx(segment, done, next_stop(segment, done, ready));
    }
  }

 private:
  static constexpr int64_t kRing = 16;  // rows: a group and the W-1 before it
  static_assert(kRing >= simd::kConvRows);

  float* ring(int64_t r) const { return ring_ + (r & (kRing - 1)) * channels_; }

  void add_pre(const Segment& segment, int64_t begin, int64_t end, float* sums) const {
    const ShortConv& conv = history_.conv;
    simd::ConvGroup group = group_at(history_, segment, begin, end - begin, column_, channels_);
    for (int64_t t = begin; t < end; ++t) {
      group.dy[t - begin] = dy_.row(t) + column_;
      group.y[t - begin] = ring(t);
    }
    if (group.x_ahead) group.dy_ahead = kConvTokens * dy_.ld;
    if (sums) {
      group.dweight = sums + column_;
      group.ld_dweight = conv.channels;
      group.dbias = sums + conv.width * conv.channels + column_;
    }
    simd::kernels().layers.conv_grad(group);
  }

  // Groups do not mix rows of the initial state and of x.
  static int64_t next_stop(const Segment& segment, int64_t begin, int64_t end) {
    return std::min({begin + kConvTokens, end, begin < segment.first ? segment.first : end});
  }

  // dx_t = sum_j w_{W-1-j} dpre_{t+j}: a convolution of the gradients that follow.
  void set_dx(const Segment& segment, int64_t begin, int64_t end) const {
    const ShortConv& conv = history_.conv;
    simd::ConvGroup group{};
    group.tokens = end - begin;
    group.channels = channels_;
    group.width = conv.width;
    group.weight = conv.weight + column_ * conv.width;
    group.reversed = true;
    for (int64_t i = 0; i < end - begin + conv.width - 1; ++i) {
      const int64_t t = begin + i;
      group.x[i] = t >= segment.first && t < segment.last ? ring(t) : nullptr;
    }
    for (int64_t t = begin; t < end; ++t) group.y[t - begin] = gradient_row(segment, t) + column_;
    simd::kernels().layers.conv(group);
  }

  float* gradient_row(const Segment& segment, int64_t r) const {
    if (r >= segment.first) return grads_.dx.row(r);
    const int64_t kept = history_.conv.width - 1;
    return grads_.dinitial + (segment.sequence * kept + kept + r - segment.first) * history_.conv.channels;
  }

  const History& history_;
  ConstView dy_;
  const ShortConvGrads& grads_;
  int64_t column_, channels_;
  float* ring_;
};

// The final state is a copy of inputs, or of the initial state where the sequence is short.
void add_final(const ShortConv& conv, std::span<const int64_t> offsets, const float* dfinal,
               const ShortConvGrads& grads) {
  const int64_t kept = conv.width - 1;
  for (size_t n = 0; n + 1 < offsets.size(); ++n) {
    const int64_t first = offsets[n], last = offsets[n + 1], state = static_cast<int64_t>(n) * kept;
    for (int64_t i = 0; i < kept; ++i) {
      const int64_t r = last - kept + i;
      if (r < first && !grads.dinitial) continue;
      float* to = r >= first ? grads.dx.row(r) : grads.dinitial + (state + kept + r - first) * conv.channels;
      const float* from = dfinal + (state + i) * conv.channels;
      for (int64_t c = 0; c < conv.channels; ++c) to[c] += from[c];
    }
  }
}

}  // namespace

void short_conv_forward(const ShortConv& conv, std::span<const int64_t> offsets, ConstView x, const float* initial,
                        View y, float* final, int threads) {
  assert(conv.width >= 1 && conv.width <= simd::kConvMaxWidth);
  assert(!offsets.empty() && offsets.front() == 0);
  const auto& kernels = simd::kernels().layers;
  const History history{conv, x, initial};
  for_row_blocks(y.data ? offsets.back() : 0, conv.channels, threads, [&](int64_t begin, int64_t end) {
    for_segments(offsets, begin, end, [&](const Segment& segment) {
      for (int64_t t = segment.begin; t < segment.end; t += kConvTokens) {
        const int64_t tokens = std::min(kConvTokens, segment.end - t);
        simd::ConvGroup group = group_at(history, segment, t, tokens, 0, conv.channels);
        for (int64_t i = 0; i < tokens; ++i) group.y[i] = y.row(t + i);
        kernels.conv(group);
      }
    });
  });
  if (final) keep_final(conv, offsets, history, final);
}

void short_conv_backward(const ShortConv& conv, std::span<const int64_t> offsets, ConstView x, const float* initial,
                         ConstView dy, const float* dfinal, const ShortConvGrads& grads, int threads) {
  assert(conv.width >= 1 && conv.width <= simd::kConvMaxWidth);
  assert(!offsets.empty() && offsets.front() == 0);
  constexpr int64_t kPanel = 512;  // channels: rows in long runs, and a ring that stays near the first-level cache
  const int64_t C = conv.channels, W = conv.width, panels = (C + kPanel - 1) / kPanel;
  const History history{conv, x, initial};
  const RowSums blocks(layer_scratch(), offsets.back(), C, (W + 1) * C);
  if (grads.dinitial) {  // sequences without tokens are visited by nobody
    std::fill_n(grads.dinitial, static_cast<int64_t>(offsets.size() - 1) * (W - 1) * C, 0.0f);
  }
  parallel_for(threads, blocks.blocks() * panels, [&](int64_t task) {
    const int64_t block = task / panels, column = task % panels * kPanel;
    const int64_t channels = std::min(kPanel, C - column);
    const TaskArena scratch;
    float* ring = scratch.get().take(PanelBackward::ring_size(channels));
    const PanelBackward panel(history, dy, grads, column, channels, ring);
    for_segments(offsets, blocks.begin(block), blocks.end(block),
                 [&](const Segment& segment) { panel.run(segment, blocks.sums(block)); });
  });
  if (dfinal) add_final(conv, offsets, dfinal, grads);

  const float* total = blocks.total(threads);
  for (int64_t c = 0; c < C; ++c) {
    for (int64_t j = 0; grads.dweight && j < W; ++j) grads.dweight[c * W + j] += total[j * C + c];
    if (grads.dbias) grads.dbias[c] += total[W * C + c];
  }
}

}  // namespace deltanet::nn
