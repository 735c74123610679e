// Tiles of products whose second factor is in panels. See panels.h for the layout.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/panels.cc"
#include "hwy/foreach_target.h"

#include <algorithm>
#include <bit>
#include <cstring>

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

// Accumulators of a tile: 24 of 32 registers with AVX-512, 12 of 16 otherwise. The rest hold two vectors of B and one
// cell of A.
constexpr int kTileRows = kLanes >= 16 ? 12 : 6;
constexpr int kTileVecs = 2;
constexpr int64_t kPanel = kTileVecs * kLanes;

struct Floats {
  static HWY_INLINE void multiply_add(Vec a, Vec b, Vec& sum) { sum = hn::MulAdd(a, b, sum); }
};

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
#define DELTANET_AVX512_BF16 1
// Highway does not know the instruction; as assembly it needs no compiler option for the whole file.
struct Pairs {
  static HWY_INLINE void multiply_add(Vec a, Vec b, Vec& sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
  }
};
#endif

HWY_INLINE float cell_at(const char* p) {
  float cell;
  std::memcpy(&cell, p, sizeof(cell));
  return cell;
}

HWY_INLINE float half_cell_at(const char* p) {
  uint16_t lower;
  std::memcpy(&lower, p, sizeof(lower));
  return std::bit_cast<float>(uint32_t{lower});
}

// Where a tile's sums go: added to c if `add`, and to the bias if there is one.
struct Target {
  float* c;
  int64_t ldc;
  const float* bias;
  bool add;
};

// a: kRows rows of p; b: a panel, of which kVecs vectors count.
template <class Type, int kRows, int kVecs>
HWY_NOINLINE void tile(const PanelProduct& p, const char* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                       const Target& to) {
  const D d;
  const int64_t row_bytes = p.a_row_bytes;
  // So that the lines to write arrive while the sums are formed.
  for (int r = 0; r < kRows; ++r) {
    __builtin_prefetch(to.c + r * to.ldc, 1);
    __builtin_prefetch(to.c + r * to.ldc + kVecs * kLanes - 1, 1);
  }
  Vec sums[kRows][kVecs];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) sums[r][v] = hn::Zero(d);
  }
  const float* const end = b + (p.cells - (p.half_cell ? 1 : 0)) * kPanel;
  for (; b < end; b += kPanel, a += sizeof(float)) {
    Vec columns[kVecs];
    for (int v = 0; v < kVecs; ++v) columns[v] = hn::Load(d, b + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Vec row = hn::Set(d, cell_at(a + r * row_bytes));
      for (int v = 0; v < kVecs; ++v) Type::multiply_add(row, columns[v], sums[r][v]);
    }
  }
  if (p.half_cell) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Vec row = hn::Set(d, half_cell_at(a + r * row_bytes));
      for (int v = 0; v < kVecs; ++v) Type::multiply_add(row, hn::Load(d, b + v * kLanes), sums[r][v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) {
      float* at = to.c + r * to.ldc + v * kLanes;
      Vec before = to.add ? hn::LoadU(d, at) : hn::Zero(d);
      if (to.bias) before = hn::Add(before, hn::LoadU(d, to.bias + v * kLanes));
      hn::StoreU(hn::Add(before, sums[r][v]), d, at);
    }
  }
}

// A tile of which not all columns exist.
template <class Type, int kRows, int kVecs>
HWY_NOINLINE void part_of_tile(const PanelProduct& p, const char* a, const float* b, const Target& to,
                               int64_t columns) {
  constexpr int64_t kWidth = kVecs * kLanes;
  float sums[kRows * kWidth];
  tile<Type, kRows, kVecs>(p, a, b, {sums, kWidth, nullptr, false});
  for (int r = 0; r < kRows; ++r) {
    float* c = to.c + r * to.ldc;
    for (int64_t i = 0; i < columns; ++i) {
      c[i] = (to.add ? c[i] : 0.0f) + (to.bias ? to.bias[i] : 0.0f) + sums[r * kWidth + i];
    }
  }
}

// kRows rows, which stay in the first-level cache, with all panels, which stream from the second.
template <class Type, int kRows>
HWY_INLINE void tile_rows(const PanelProduct& p, int64_t row) {
  const char* a = static_cast<const char*>(p.a) + row * p.a_row_bytes;
  for (int64_t column = 0; column < p.n; column += kPanel) {
    const int64_t columns = std::min(kPanel, p.n - column);
    const float* b = p.b + column * p.cells;
    const Target to{p.c + row * p.ldc + column, p.ldc, p.bias ? p.bias + column : nullptr, p.add};
    if (columns == kPanel) {
      tile<Type, kRows, kTileVecs>(p, a, b, to);
    } else if (columns > kLanes) {
      part_of_tile<Type, kRows, kTileVecs>(p, a, b, to, columns);
    } else {
      part_of_tile<Type, kRows, 1>(p, a, b, to, columns);
    }
  }
}

template <class Type>
void multiply(const PanelProduct& p) {
  constexpr int kThird = kTileRows / 3;  // the last rows, which do not fill a tile, take smaller ones
  int64_t row = 0;
  for (; row + kTileRows <= p.m; row += kTileRows) tile_rows<Type, kTileRows>(p, row);
  for (; row + kThird <= p.m; row += kThird) tile_rows<Type, kThird>(p, row);
  for (; row < p.m; ++row) tile_rows<Type, 1>(p, row);
}

// How cells are made of numbers in memory; those of a pair are a row apart.
struct MakeFloats {
  using Number = float;
  static constexpr int64_t kNumbers = 1;

  static HWY_INLINE Vec vector(const float* x, int64_t) { return hn::LoadU(D(), x); }
  static HWY_INLINE float one(const float* x, int64_t) { return *x; }
  static HWY_INLINE float half(const float* x) { return *x; }
};

struct MakePairs {
  using Number = uint16_t;
  static constexpr int64_t kNumbers = 2;

  static HWY_INLINE Vec vector(const uint16_t* even, int64_t ld) {
    const hn::ScalableTag<uint32_t> d32;
    const hn::Rebind<uint16_t, decltype(d32)> d16;
    const auto lower = hn::PromoteTo(d32, hn::LoadU(d16, even));
    const auto upper = hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, even + ld)));
    return hn::BitCast(D(), hn::Or(lower, upper));
  }
  static HWY_INLINE float one(const uint16_t* even, int64_t ld) {
    return std::bit_cast<float>(uint32_t{*even} | uint32_t{even[ld]} << 16);
  }
  static HWY_INLINE float half(const uint16_t* even) { return std::bit_cast<float>(uint32_t{*even}); }
};

template <class Make>
void pack(const PanelPacking& p) {
  using Number = typename Make::Number;
  constexpr int64_t kAhead = 4;  // cells: rows may be pages apart, where the hardware does not look ahead
  constexpr int64_t kLine = 64 / sizeof(Number);
  const auto* from = static_cast<const Number*>(p.from);
  for (int64_t cell = 0; cell < p.cells; ++cell) {
    const Number* row = from + cell * Make::kNumbers * p.ld;
    const bool whole = (cell + 1) * Make::kNumbers <= p.depth;
    if (cell + kAhead < p.cells) {
      for (int64_t number = 0; number < Make::kNumbers; ++number) {
        const Number* next = row + (kAhead * Make::kNumbers + number) * p.ld;
        for (int64_t i = 0; i < p.n; i += kLine) __builtin_prefetch(next + i, 0, 2);
      }
    }
    for (int64_t i = 0; i < p.n; i += kPanel) {
      float* to = p.to + i * p.cells + cell * kPanel;
      const int64_t count = std::min(kPanel, p.n - i);
      int64_t at = 0;
      for (; whole && at + kLanes <= count; at += kLanes) hn::Store(Make::vector(row + i + at, p.ld), D(), to + at);
      for (; at < count; ++at) to[at] = whole ? Make::one(row + i + at, p.ld) : Make::half(row + i + at);
      for (; at < kPanel; ++at) to[at] = 0.0f;
    }
  }
}

}  // namespace

void fill_panels(Kernels& table) {
  table.panels = {kTileRows, kPanel, multiply<Floats>, nullptr, pack<MakeFloats>, pack<MakePairs>};
#ifdef DELTANET_AVX512_BF16
  if (__builtin_cpu_supports("avx512bf16")) table.panels.pairs = multiply<Pairs>;
#undef DELTANET_AVX512_BF16
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace deltanet::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltanet::simd {
HWY_EXPORT(fill_panels);
void add_panels(Kernels& table) { HWY_DYNAMIC_DISPATCH(fill_panels)(table); }
}  // namespace deltanet::simd
#endif
