// Weight rows times few rows of activations, y = x W^T: weights are read once and widened to float in registers.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/matvec.cc"
#include "hwy/foreach_target.h"

#include <algorithm>
#include <cstring>

#include "hwy/highway.h"
#include "simd/modules.h"

HWY_BEFORE_NAMESPACE();
namespace deltanet::simd {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using DI32 = hn::RebindToSigned<D>;
using DU32 = hn::RebindToUnsigned<D>;
using Vec = hn::Vec<D>;

constexpr int64_t kLanes = HWY_LANES(float);

// Rows of x that are walked together. More of them, or more than two rows of weights, would not stay in the first-level
// cache beside the weights that pass through it.
constexpr int kMaxRows = 3;
constexpr int kUnroll = 4;  // vectors: up to a cache line of weights

// How the weights are stored.
struct Float32 {
  using Lane = float;
  static constexpr bool kScaled = false;
  static HWY_INLINE Vec load(const float* p) { return hn::LoadU(D(), p); }
};

struct Bfloat16 {
  using Lane = uint16_t;
  static constexpr bool kScaled = false;
  static HWY_INLINE Vec load(const uint16_t* p) {
    const DU32 d32;
    const hn::Rebind<uint16_t, D> d16;
    return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, p))));
  }
};

struct Int8 {
  using Lane = int8_t;
  static constexpr bool kScaled = true;
  static HWY_INLINE Vec load(const int8_t* p) {
    const hn::Rebind<int8_t, D> d8;
    return hn::ConvertTo(D(), hn::PromoteTo(DI32(), hn::LoadU(d8, p)));
  }
};

HWY_INLINE float sum_of(Vec v) { return hn::GetLane(hn::SumOfLanes(D(), v)); }

// A tile is kMaxRows rows of x; the last may have fewer. In a packed tile of R rows, vector i of row r is vector i R +
// r, so that x is one stream: as they were, rows of 4 KiB would fight for one cache set.
void pack(int64_t rows, int64_t in, const float* HWY_RESTRICT x, int64_t ldx, float* HWY_RESTRICT packed) {
  for (int64_t first = 0; first < rows; first += kMaxRows) {
    const int64_t count = std::min<int64_t>(kMaxRows, rows - first);
    for (int64_t i = 0; i < padded(in); i += kLanes) {
      for (int64_t r = 0; r < count; ++r, packed += kLanes) {
        const float* from = x + (first + r) * ldx + i;
        if (i + kLanes <= in) {
          hn::Store(hn::LoadU(D(), from), D(), packed);
        } else {
          for (int64_t lane = 0; lane < kLanes; ++lane) packed[lane] = i + lane < in ? from[lane] : 0.0f;
        }
      }
    }
  }
}

// kRows rows of x from row `first` on times kCount weight rows: `out` and every p.apart rows further.
template <class W, int kRows, int kCount>
HWY_INLINE void tile(const Matvec& p, int64_t first, int64_t out) {
  using Lane = typename W::Lane;
  const D d;
  const int64_t in = p.in, ldw = p.apart * in;
  const Lane* HWY_RESTRICT w = static_cast<const Lane*>(p.w) + out * in;
  const float* HWY_RESTRICT x = p.x + first * padded(in);

  Vec acc[kRows][kCount];
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kCount; ++c) acc[r][c] = hn::Zero(d);
  }
  int64_t i = 0;
  for (; i + kUnroll * kLanes <= in; i += kUnroll * kLanes) {
    for (int u = 0; u < kUnroll; ++u, x += kRows * kLanes) {
      for (int c = 0; c < kCount; ++c) {
        const Vec w_at = W::load(w + c * ldw + i + u * kLanes);
        for (int r = 0; r < kRows; ++r) acc[r][c] = hn::MulAdd(hn::LoadU(d, x + r * kLanes), w_at, acc[r][c]);
      }
    }
  }
  for (; i + kLanes <= in; i += kLanes, x += kRows * kLanes) {
    for (int c = 0; c < kCount; ++c) {
      const Vec w_at = W::load(w + c * ldw + i);
      for (int r = 0; r < kRows; ++r) acc[r][c] = hn::MulAdd(hn::LoadU(d, x + r * kLanes), w_at, acc[r][c]);
    }
  }
  if (i < in) {
    // Weights end where the row does; the zeros of x do not help against a NaN behind it.
    for (int c = 0; c < kCount; ++c) {
      HWY_ALIGN Lane copy[kLanes] = {};
      std::memcpy(copy, w + c * ldw + i, static_cast<size_t>(in - i) * sizeof(Lane));
      const Vec w_at = W::load(copy);
      for (int r = 0; r < kRows; ++r) acc[r][c] = hn::MulAdd(hn::LoadU(d, x + r * kLanes), w_at, acc[r][c]);
    }
  }

  for (int r = 0; r < kRows; ++r) {
    float* HWY_RESTRICT y = p.y + (first + r) * p.ldy;
    for (int c = 0; c < kCount; ++c) {
      const int64_t o = out + c * p.apart;
      float value = sum_of(acc[r][c]);
      if constexpr (W::kScaled) value *= p.scale[o];
      if (p.bias) value += p.bias[o];
      y[o] = p.add ? y[o] + value : value;
    }
  }
}

template <class W, int kCount, int kRows = kMaxRows>
HWY_INLINE void last_rows(const Matvec& p, int64_t first, int64_t out) {
  if (p.rows - first == kRows) return tile<W, kRows, kCount>(p, first, out);
  if constexpr (kRows > 1) last_rows<W, kCount, kRows - 1>(p, first, out);
}

// All rows of x; the weights are in L1 for all tiles but the first.
template <class W, int kCount>
HWY_INLINE void all_rows(const Matvec& p, int64_t out) {
  int64_t first = 0;
  for (; first + kMaxRows <= p.rows; first += kMaxRows) tile<W, kMaxRows, kCount>(p, first, out);
  last_rows<W, kCount>(p, first, out);
}

template <class W>
void matvec(const Matvec& p) {
  static_assert(kMatvecRows == 2);
  const int64_t both = std::clamp(p.out - p.apart, p.begin, p.end), one = std::clamp(p.out, p.begin, p.end);
  for (int64_t out = p.begin; out < both; ++out) all_rows<W, 2>(p, out);
  for (int64_t out = both; out < one; ++out) all_rows<W, 1>(p, out);
}

float sum(int64_t count, const float* x) {
  constexpr int kChains = 8;
  const D d;
  Vec acc[kChains];
  for (Vec& one : acc) one = hn::Zero(d);
  int64_t i = 0;
  for (; i + kChains * kLanes <= count; i += kChains * kLanes) {
    for (int c = 0; c < kChains; ++c) acc[c] = hn::Add(acc[c], hn::LoadU(d, x + i + c * kLanes));
  }
  for (int c = 1; c < kChains; ++c) acc[0] = hn::Add(acc[0], acc[c]);
  float total = sum_of(acc[0]);
  for (; i < count; ++i) total += x[i];
  return total;
}

}  // namespace

void fill_matvec(Kernels& table) {
  table.matvec.pack = pack;
  table.matvec.f32 = matvec<Float32>;
  table.matvec.bf16 = matvec<Bfloat16>;
  table.matvec.int8 = matvec<Int8>;
  table.matvec.sum = sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace deltanet::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltanet::simd {
HWY_EXPORT(fill_matvec);
void add_matvec(Kernels& table) { HWY_DYNAMIC_DISPATCH(fill_matvec)(table); }
}  // namespace deltanet::simd
#endif
