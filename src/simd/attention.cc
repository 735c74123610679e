// Softmax attention on blocks of scores, its decode step, and rotary embeddings.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/attention.cc"
#include "hwy/foreach_target.h"

#include <algorithm>

#include "hwy/highway.h"
#include "simd/layers-inl.h"
#include "simd/modules.h"

HWY_BEFORE_NAMESPACE();
namespace deltanet::simd {
namespace HWY_NAMESPACE {
namespace {

// 2^x, good to 1e-7, for x up to 127; exactly 0 below -126.5, NaN of NaN. Adding kShift rounds x to an integer that
// stands, with the bias of the exponent, in the low bits of the sum.
HWY_INLINE Vec exp2(Vec x) {
  const D d;
  constexpr float kShift = 12582912.0f + 127.0f;  // 1.5 * 2^23
  x = at_least(hn::Set(d, -127.0f), x);
  const Vec shifted = hn::Add(x, hn::Set(d, kShift));
  const Vec power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(hn::RebindToUnsigned<D>(), shifted)));
  const Vec f = hn::Sub(x, hn::Sub(shifted, hn::Set(d, kShift)));  // in [-1/2, 1/2]
  // Minimax in the relative error.
  Vec y = hn::MulAdd(f, hn::Set(d, 0.00015353362f), hn::Set(d, 0.0013398875f));
  y = hn::MulAdd(f, y, hn::Set(d, 0.00961843692f));
  y = hn::MulAdd(f, y, hn::Set(d, 0.0555033237f));
  y = hn::MulAdd(f, y, hn::Set(d, 0.240226477f));
  y = hn::MulAdd(f, y, hn::Set(d, 0.693147182f));
  y = hn::MulAdd(f, y, hn::Set(d, 1.0f));
  return hn::Mul(y, power);
}

// Which query columns see a key row. Blocks away from the diagonal and from the end of the window need no mask.
template <bool kMasked>
struct Visible {
  const ScoreBlock& block;

  HWY_ATTR HWY_INLINE hn::Mask<D> mask(int64_t key, int64_t col) const {
    const D d;
    const int64_t begin = std::clamp<int64_t>(block.first + key, 0, block.n);
    const int64_t end = std::clamp<int64_t>(block.first + key + block.window, 0, block.n);
    const Vec at = hn::Iota(d, static_cast<float>(col));
    return hn::And(hn::Ge(at, hn::Set(d, static_cast<float>(begin))), hn::Lt(at, hn::Set(d, static_cast<float>(end))));
  }
  HWY_ATTR HWY_INLINE Vec or_no_score(Vec score, int64_t key, int64_t col) const {
    if constexpr (!kMasked) return score;
    return hn::IfThenElse(mask(key, col), score, hn::Set(D(), kNoScore));
  }
  HWY_ATTR HWY_INLINE Vec or_zero(Vec p, int64_t key, int64_t col) const {
    if constexpr (!kMasked) return p;
    return hn::IfThenElseZero(mask(key, col), p);
  }
};

// Calls `columns` for all n columns, four or two vectors at a time where they fit: enough chains to hide the latencies.
template <bool kMasked, class Columns>
HWY_INLINE void for_columns(int64_t n, const Columns& columns) {
  int64_t col = 0;
  for (; col + 4 * kLanes <= n; col += 4 * kLanes) columns.template operator()<4, kMasked>(col);
  for (; col + 2 * kLanes <= n; col += 2 * kLanes) columns.template operator()<2, kMasked>(col);
  for (; col < n; col += kLanes) columns.template operator()<1, kMasked>(col);
}

template <class Columns>
HWY_INLINE void for_visible_columns(const ScoreBlock& b, const Columns& columns) {
  const bool all_visible = b.first + b.keys - 1 <= 0 && b.first + b.window >= b.n;
  all_visible ? for_columns<false>(b.n, columns) : for_columns<true>(b.n, columns);
}

struct SoftmaxColumns {
  const SoftmaxBlock& p;

  template <int kVecs, bool kMasked>
  HWY_ATTR HWY_INLINE void operator()(int64_t col) const {
    const D d;
    const ScoreBlock& b = p.block;
    const Visible<kMasked> visible{b};
    const Vec scale = hn::Set(d, b.scale2);
    Vec top[kVecs], top2[kVecs], sum[kVecs];
    for (int v = 0; v < kVecs; ++v) top[v] = hn::Load(d, p.maximum + col + v * kLanes);
    for (int64_t key = 0; key < b.keys; ++key) {
      const float* row = b.scores + key * b.ld + col;
      for (int v = 0; v < kVecs; ++v) {
        top[v] = hn::Max(top[v], visible.or_no_score(hn::Load(d, row + v * kLanes), key, col + v * kLanes));
      }
    }
    for (int v = 0; v < kVecs; ++v) {
      const int64_t at = col + v * kLanes;
      const Vec before = hn::Load(d, p.maximum + at);
      const Vec correction = exp2(hn::Mul(scale, hn::Sub(before, top[v])));
      hn::Store(correction, d, p.correction + at);
      hn::Store(top[v], d, p.maximum + at);
      top2[v] = hn::Mul(scale, top[v]);
      sum[v] = hn::Mul(correction, hn::Load(d, p.sum + at));
    }
    for (int64_t key = 0; key < b.keys; ++key) {
      float* row = b.scores + key * b.ld + col;
      for (int v = 0; v < kVecs; ++v) {
        const Vec power = exp2(hn::MulSub(scale, hn::Load(d, row + v * kLanes), top2[v]));
        const Vec probability = visible.or_zero(power, key, col + v * kLanes);
        sum[v] = hn::Add(sum[v], probability);
        hn::Store(probability, d, row + v * kLanes);
      }
    }
    for (int v = 0; v < kVecs; ++v) hn::Store(sum[v], d, p.sum + col + v * kLanes);
  }
};

void softmax(const SoftmaxBlock& p) { for_visible_columns(p.block, SoftmaxColumns{p}); }

struct SoftmaxGradColumns {
  const SoftmaxGradBlock& p;

  template <int kVecs, bool kMasked>
  HWY_ATTR HWY_INLINE void operator()(int64_t col) const {
    const D d;
    const ScoreBlock& b = p.block;
    const Visible<kMasked> visible{b};
    const Vec scale = hn::Set(d, b.scale2);
    for (int64_t key = 0; key < b.keys; ++key) {
      float* row = b.scores + key * b.ld;
      float* drow = p.dscores + key * b.ld;
      for (int64_t at = col; at < col + kVecs * kLanes; at += kLanes) {
        const Vec power = exp2(hn::MulSub(scale, hn::Load(d, row + at), hn::Load(d, p.lse2 + at)));
        const Vec probability = visible.or_zero(power, key, at);
        hn::Store(probability, d, row + at);
        hn::Store(hn::Mul(probability, hn::Sub(hn::Load(d, drow + at), hn::Load(d, p.delta + at))), d, drow + at);
      }
    }
  }
};

void softmax_grad(const SoftmaxGradBlock& p) { for_visible_columns(p.block, SoftmaxGradColumns{p}); }

// ---- decode

// Calls `block` for all heads, four or two at a time where they fit, so that a key or value is loaded once for them.
template <class Block>
HWY_INLINE void for_head_blocks(int64_t heads, const Block& block) {
  int64_t head = 0;
  for (; head + 4 <= heads; head += 4) block.template operator()<4>(head);
  for (; head + 2 <= heads; head += 2) block.template operator()<2>(head);
  for (; head < heads; ++head) block.template operator()<1>(head);
}

struct DecodeScores {
  const DecodeBlock& p;

  template <int kHeads>
  HWY_ATTR HWY_INLINE void operator()(int64_t head) const {
    const D d;
    const int64_t ld = padded(p.keys);
    for (int64_t key = 0; key < p.keys; ++key) {
      Vec acc[kHeads];
      for (int h = 0; h < kHeads; ++h) acc[h] = hn::Zero(d);
      for (int64_t i = 0; i < p.n; i += kLanes) {
        const Vec k = hn::LoadU(d, p.k + key * p.n + i);
        for (int h = 0; h < kHeads; ++h) acc[h] = hn::MulAdd(k, hn::Load(d, p.q + (head + h) * p.n + i), acc[h]);
      }
      for (int h = 0; h < kHeads; ++h) {
        p.scores[(head + h) * ld + key] = hn::GetLane(hn::SumOfLanes(d, acc[h]));
      }
    }
  }
};

// The online softmax of one head: scores become probabilities, what was accumulated before is scaled down.
HWY_INLINE void decode_softmax(const DecodeBlock& p, int64_t head) {
  const D d;
  const int64_t ld = padded(p.keys);
  float* scores = p.scores + head * ld;
  std::fill(scores + p.keys, scores + ld, kNoScore);
  Vec top = hn::Set(d, p.maximum[head]);
  for (int64_t j = 0; j < ld; j += kLanes) top = hn::Max(top, hn::Load(d, scores + j));
  top = hn::MaxOfLanes(d, top);
  const Vec scale = hn::Set(d, p.scale2);
  const Vec top2 = hn::Mul(scale, top);
  const Vec correction = exp2(hn::Mul(scale, hn::Sub(hn::Set(d, p.maximum[head]), top)));
  Vec sum = hn::Zero(d);
  for (int64_t j = 0; j < ld; j += kLanes) {
    const Vec probability = exp2(hn::MulSub(scale, hn::Load(d, scores + j), top2));
    sum = hn::Add(sum, probability);
    hn::Store(probability, d, scores + j);
  }
  p.maximum[head] = hn::GetLane(top);
  p.sum[head] = p.sum[head] * hn::GetLane(correction) + hn::GetLane(hn::SumOfLanes(d, sum));
  float* o = p.o + head * p.n;
  for (int64_t i = 0; i < p.n; i += kLanes) hn::Store(hn::Mul(correction, hn::Load(d, o + i)), d, o + i);
}

struct DecodeOutputs {
  const DecodeBlock& p;

  template <int kHeads>
  HWY_ATTR HWY_INLINE void operator()(int64_t head) const {
    int64_t col = 0;
    for (; col + 2 * kLanes <= p.n; col += 2 * kLanes) columns<kHeads, 2>(head, col);
    for (; col < p.n; col += kLanes) columns<kHeads, 1>(head, col);
  }

  template <int kHeads, int kVecs>
  HWY_ATTR HWY_INLINE void columns(int64_t head, int64_t col) const {
    const D d;
    const int64_t ld = padded(p.keys);
    Vec acc[kHeads][kVecs];
    for (int h = 0; h < kHeads; ++h) {
      for (int v = 0; v < kVecs; ++v) acc[h][v] = hn::Load(d, p.o + (head + h) * p.n + col + v * kLanes);
    }
    for (int64_t key = 0; key < p.keys; ++key) {
      Vec value[kVecs];
      for (int v = 0; v < kVecs; ++v) value[v] = hn::LoadU(d, p.v + key * p.n + col + v * kLanes);
      for (int h = 0; h < kHeads; ++h) {
        const Vec probability = hn::Set(d, p.scores[(head + h) * ld + key]);
        for (int v = 0; v < kVecs; ++v) acc[h][v] = hn::MulAdd(probability, value[v], acc[h][v]);
      }
    }
    for (int h = 0; h < kHeads; ++h) {
      for (int v = 0; v < kVecs; ++v) hn::Store(acc[h][v], d, p.o + (head + h) * p.n + col + v * kLanes);
    }
  }
};

void decode(const DecodeBlock& p) {
  for_head_blocks(p.heads, DecodeScores{p});
  for (int64_t head = 0; head < p.heads; ++head) decode_softmax(p, head);
  for_head_blocks(p.heads, DecodeOutputs{p});
}

// ---- rotary embeddings

template <class Tag>
HWY_INLINE void rotate_pairs(Tag d, float* low, float* high, const float* cosine, const float* sine, float sign) {
  const auto x = hn::LoadU(d, low), y = hn::LoadU(d, high), c = hn::LoadU(d, cosine);
  const auto s = hn::Mul(hn::Set(d, sign), hn::LoadU(d, sine));
  hn::StoreU(hn::NegMulAdd(y, s, hn::Mul(x, c)), d, low);
  hn::StoreU(hn::MulAdd(x, s, hn::Mul(y, c)), d, high);
}

void rotate(const Rotation& p) {
  const D d;
  const hn::CappedTag<float, 1> d1;
  const float sign = p.inverse ? -1.0f : 1.0f;
  for (int64_t row = 0; row < p.rows; ++row) {
    const float *cosine = p.cosine + row * p.half, *sine = p.sine + row * p.half;
    for (int64_t head = 0; head < p.heads; ++head) {
      float* low = p.x + row * p.ldx + head * 2 * p.half;
      float* high = low + p.half;
      int64_t i = 0;
      for (; i + kLanes <= p.half; i += kLanes) rotate_pairs(d, low + i, high + i, cosine + i, sine + i, sign);
      for (; i < p.half; ++i) rotate_pairs(d1, low + i, high + i, cosine + i, sine + i, sign);
    }
  }
}

}  // namespace

void fill_attention(Kernels& table) {
  table.attention.softmax = softmax;
  table.attention.softmax_grad = softmax_grad;
  table.attention.decode = decode;
  table.attention.rotate = rotate;
}

}  // namespace HWY_NAMESPACE
}  // namespace deltanet::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltanet::simd {
HWY_EXPORT(fill_attention);
void add_attention(Kernels& table) { HWY_DYNAMIC_DISPATCH(fill_attention)(table); }
}  // namespace deltanet::simd
#endif
