// Small dense and triangular matrix products. See kernels.h for the layout rules.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/gemm.cc"
#include "hwy/foreach_target.h"

#include <algorithm>

#include "hwy/highway.h"
#include "simd/modules.h"

HWY_BEFORE_NAMESPACE();
namespace deltanet::simd {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using Vec = hn::Vec<D>;

constexpr int64_t kLanes = HWY_LANES(float);

// Register tile: kTileRows x kTileVecs accumulators plus the operands fit the register file (32 registers with AVX-512,
// 16 otherwise), with enough independent chains to hide the latency of the multiply-add.
constexpr int kTileRows = kLanes >= 16 ? 8 : 4;
constexpr int kTileVecs = 2;

template <Into kInto, bool kACols, int kVecs, class Tag = D>
HWY_INLINE void tile(const Gemm& g, int64_t row, int64_t col) {
  using V = hn::Vec<Tag>;
  constexpr int64_t kStep = hn::MaxLanes(Tag());
  const Tag d;
  V acc[kTileRows][kVecs];
  for (int r = 0; r < kTileRows; ++r) {
    for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::Zero(d);
  }
  const int64_t a_row = kACols ? 1 : g.lda;
  const int64_t a_step = kACols ? g.lda : 1;
  const float* HWY_RESTRICT a = g.a + row * a_row;
  const float* HWY_RESTRICT b = g.b + col;
  for (int64_t step = 0; step < g.depth; ++step) {
    V bv[kVecs];
    for (int v = 0; v < kVecs; ++v) bv[v] = hn::Load(d, b + v * kStep);
    for (int r = 0; r < kTileRows; ++r) {
      const V av = hn::Set(d, a[r * a_row]);
      for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::MulAdd(av, bv[v], acc[r][v]);
    }
    a += a_step;
    b += g.ldb;
  }
  const float* from = g.from ? g.from : g.c;
  for (int r = 0; r < kTileRows; ++r) {
    const int64_t at = (row + r) * g.ldc + col;
    for (int v = 0; v < kVecs; ++v) {
      const float* c = from + at + v * kStep;
      V sum = acc[r][v];
      if constexpr (kInto == Into::kSetScaled) sum = hn::Mul(hn::Set(d, g.scale[row + r]), sum);
      if constexpr (kInto == Into::kSubScaled) sum = hn::NegMulAdd(hn::Set(d, g.scale[row + r]), sum, hn::Load(d, c));
      if constexpr (kInto == Into::kAdd) sum = hn::Add(hn::Load(d, c), sum);
      if constexpr (kInto == Into::kRowScale) sum = hn::MulAdd(hn::Set(d, g.scale[row + r]), hn::Load(d, c), sum);
      if constexpr (kInto == Into::kColScale)
        sum = hn::MulAdd(hn::Load(d, g.scale + col + v * kStep), hn::Load(d, c), sum);
      hn::Store(sum, d, g.c + at + v * kStep);
    }
  }
}

// Columns outside, rows inside: a panel of B (depth x 32 floats) stays in L1 while all rows of A pass over it.
template <Into kInto, bool kACols>
HWY_NOINLINE void gemm_into(const Gemm& g) {
  const int64_t vectors = g.n / kLanes, tiles = g.m / kTileRows * (vectors / kTileVecs + vectors % kTileVecs);
  // Rounded up, so that the last rows are not asked for just before they are needed.
  int64_t rows_ahead = g.ahead ? g.ahead->per_product() : 0;
  const int64_t per_tile = (rows_ahead + tiles - 1) / tiles;
  const auto after_tile = [&] {
    if (rows_ahead <= 0) return;
    g.ahead->ask(std::min(per_tile, rows_ahead));
    rows_ahead -= per_tile;
  };
  int64_t col = 0;
  for (; col + kTileVecs * kLanes <= g.n; col += kTileVecs * kLanes) {
    for (int64_t row = 0; row < g.m; row += kTileRows) {
      tile<kInto, kACols, kTileVecs>(g, row, col);
      after_tile();
    }
  }
  for (; col < g.n; col += kLanes) {
    for (int64_t row = 0; row < g.m; row += kTileRows) {
      tile<kInto, kACols, 1>(g, row, col);
      after_tile();
    }
  }
}

// Of the upper half of each square only the left half is wanted, which saves a quarter of the work.
void gram(const Gemm& g) {
  constexpr int64_t kHalf = kChunk / 2;
  for (int64_t row = 0; row < g.m; row += kChunk) {
    for (int64_t r = row; r < row + kHalf; r += kTileRows) {
      if constexpr (kLanes > kHalf) {
        tile<Into::kSet, false, 1, hn::CappedTag<float, kHalf>>(g, r, 0);
      } else {
        for (int64_t col = 0; col < kHalf; col += kLanes) tile<Into::kSet, false, 1>(g, r, col);
      }
    }
    for (int64_t r = row + kHalf; r < row + kChunk; r += kTileRows) {
      constexpr int kVecs = kLanes < kChunk ? 2 : 1;
      for (int64_t col = 0; col < kChunk; col += kVecs * kLanes) tile<Into::kSet, false, kVecs>(g, r, col);
    }
  }
}

template <bool kACols>
void gemm(Into into, const Gemm& g) {
  switch (into) {
    case Into::kSet:
      return gemm_into<Into::kSet, kACols>(g);
    case Into::kAdd:
      return gemm_into<Into::kAdd, kACols>(g);
    case Into::kRowScale:
      return gemm_into<Into::kRowScale, kACols>(g);
    case Into::kColScale:
      return gemm_into<Into::kColScale, kACols>(g);
    case Into::kSetScaled:
      return gemm_into<Into::kSetScaled, kACols>(g);
    case Into::kSubScaled:
      return gemm_into<Into::kSubScaled, kACols>(g);
  }
}

// One row block of a triangular product: y_i += sign * sum_j coef(i,j) x_j over kVecs vectors, with the sum split in
// two chains by the parity of j because the multiply-adds of one chain wait for each other.
template <int kVecs, bool kNegate>
HWY_INLINE void row_combination(const float* HWY_RESTRICT coef, int64_t coef_step, int64_t count, const float* x,
                                int64_t ldx, float* y) {
  const D d;
  Vec even[kVecs], odd[kVecs];
  for (int v = 0; v < kVecs; ++v) {
    even[v] = hn::Load(d, y + v * kLanes);
    odd[v] = hn::Zero(d);
  }
  int64_t j = 0;
  for (; j + 1 < count; j += 2) {
    const Vec c0 = hn::Set(d, coef[j * coef_step]);
    const Vec c1 = hn::Set(d, coef[(j + 1) * coef_step]);
    const float* x0 = x + j * ldx;
    const float* x1 = x0 + ldx;
    for (int v = 0; v < kVecs; ++v) {
      const Vec a0 = hn::Load(d, x0 + v * kLanes);
      const Vec a1 = hn::Load(d, x1 + v * kLanes);
      even[v] = kNegate ? hn::NegMulAdd(c0, a0, even[v]) : hn::MulAdd(c0, a0, even[v]);
      odd[v] = kNegate ? hn::NegMulAdd(c1, a1, odd[v]) : hn::MulAdd(c1, a1, odd[v]);
    }
  }
  if (j < count) {
    const Vec c0 = hn::Set(d, coef[j * coef_step]);
    for (int v = 0; v < kVecs; ++v) {
      const Vec a0 = hn::Load(d, x + j * ldx + v * kLanes);
      even[v] = kNegate ? hn::NegMulAdd(c0, a0, even[v]) : hn::MulAdd(c0, a0, even[v]);
    }
  }
  for (int v = 0; v < kVecs; ++v) hn::Store(hn::Add(even[v], odd[v]), d, y + v * kLanes);
}

// Applies `block` to all n columns, in blocks of four or two vectors where they fit.
template <class Block>
HWY_INLINE void for_column_blocks(int64_t n, const Block& block) {
  int64_t col = 0;
  for (; col + 4 * kLanes <= n; col += 4 * kLanes) block.template operator()<4>(col);
  for (; col + 2 * kLanes <= n; col += 2 * kLanes) block.template operator()<2>(col);
  for (; col < n; col += kLanes) block.template operator()<1>(col);
}

enum class Triangle { kLower, kUpper, kStrictLower, kStrictUpper };

// Y += or -= T X, with T the named triangle of L, or of its transpose for the upper ones.
template <Triangle kTriangle, bool kNegate>
struct TriangularProduct {
  const float* L;
  int64_t ldl;
  const float* X;
  int64_t ldx;
  float* Y;
  int64_t ldy;

  template <int kVecs>
  HWY_ATTR HWY_INLINE void operator()(int64_t col) const {
    for (int64_t i = 0; i < kChunk; ++i) {
      float* y = Y + i * ldy + col;
      if constexpr (kTriangle == Triangle::kLower || kTriangle == Triangle::kStrictLower) {
        const int64_t count = kTriangle == Triangle::kLower ? i + 1 : i;
        row_combination<kVecs, kNegate>(L + i * ldl, 1, count, X + col, ldx, y);
      } else {
        const int64_t first = kTriangle == Triangle::kUpper ? i : i + 1;
        row_combination<kVecs, kNegate>(L + first * ldl + i, ldl, kChunk - first, X + first * ldx + col, ldx, y);
      }
    }
  }
};

template <Triangle kTriangle, bool kNegate>
void triangular_product(const float* L, int64_t ldl, int64_t n, const float* X, int64_t ldx, float* Y, int64_t ldy) {
  for_column_blocks(n, TriangularProduct<kTriangle, kNegate>{L, ldl, X, ldx, Y, ldy});
}

// X <- (I + L)^-1 X or (I + L^T)^-1 X by substitution, in place.
template <bool kTransposed>
struct TriangularSolve {
  const float* L;
  int64_t ldl;
  float* X;
  int64_t ldx;

  template <int kVecs>
  HWY_ATTR HWY_INLINE void operator()(int64_t col) const {
    for (int64_t step = 1; step < kChunk; ++step) {
      if constexpr (kTransposed) {
        const int64_t i = kChunk - 1 - step;
        row_combination<kVecs, true>(L + (i + 1) * ldl + i, ldl, step, X + (i + 1) * ldx + col, ldx, X + i * ldx + col);
      } else {
        row_combination<kVecs, true>(L + step * ldl, 1, step, X + col, ldx, X + step * ldx + col);
      }
    }
  }
};

template <bool kTransposed>
void triangular_solve(const float* L, int64_t ldl, int64_t n, float* X, int64_t ldx) {
  for_column_blocks(n, TriangularSolve<kTransposed>{L, ldl, X, ldx});
}

#if HWY_TARGET == HWY_SCALAR
void transpose(int64_t rows, int64_t n, const float* HWY_RESTRICT x, int64_t ldx, float* HWY_RESTRICT y, int64_t ldy) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < n; ++j) y[j * ldy + i] = x[i * ldx + j];
  }
}
#else
// Four columns of one row or, with a wider vector, also of the row four below.
template <class Tag>
HWY_INLINE hn::Vec<Tag> four_columns(Tag d, const float* source, int64_t ldx) {
  const hn::FixedTag<float, 4> d4;
  if constexpr (hn::MaxLanes(Tag()) == 8) {
    return hn::Combine(d, hn::LoadU(d4, source + 4 * ldx), hn::LoadU(d4, source));
  } else {
    return hn::LoadU(d4, source);
  }
}

// 4x4 blocks are transposed inside each 128-bit half.
void transpose(int64_t rows, int64_t n, const float* HWY_RESTRICT x, int64_t ldx, float* HWY_RESTRICT y, int64_t ldy) {
  const hn::FixedTag<float, kLanes >= 8 ? 8 : 4> d;
  const hn::RepartitionToWide<decltype(d)> d64;
  constexpr int64_t kRows = kLanes >= 8 ? 8 : 4;
  for (int64_t i = 0; i < rows; i += kRows) {
    for (int64_t j = 0; j < n; j += 4) {
      const float* source = x + i * ldx + j;
      const auto r0 = four_columns(d, source, ldx), r1 = four_columns(d, source + ldx, ldx);
      const auto r2 = four_columns(d, source + 2 * ldx, ldx), r3 = four_columns(d, source + 3 * ldx, ldx);
      const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
      const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
      const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
      const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
      float* target = y + j * ldy + i;
      hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, target);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d, target + ldy);
      hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d, target + 2 * ldy);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d, target + 3 * ldy);
    }
  }
}
#endif

}  // namespace

void fill_gemm(Kernels& table) {
  table.gemm_rows = gemm<false>;
  table.gemm_cols = gemm<true>;
  table.gram = gram;
  table.solve_lower = triangular_solve<false>;
  table.solve_upper = triangular_solve<true>;
  table.add_lower = triangular_product<Triangle::kLower, false>;
  table.add_upper = triangular_product<Triangle::kUpper, false>;
  table.sub_strict_lower = triangular_product<Triangle::kStrictLower, true>;
  table.sub_strict_upper = triangular_product<Triangle::kStrictUpper, true>;
  table.transpose = transpose;
}

}  // namespace HWY_NAMESPACE
}  // namespace deltanet::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltanet::simd {
HWY_EXPORT(fill_gemm);
void add_gemm(Kernels& table) { HWY_DYNAMIC_DISPATCH(fill_gemm)(table); }
}  // namespace deltanet::simd
#endif
