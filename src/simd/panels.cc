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
constexpr int64_t kLineBytes = 64;

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

// The lines of an Ahead, one after the other.
class Lines {
 public:
  explicit Lines(const Ahead& ahead) : left_(ahead) {}

  HWY_INLINE void prefetch_next() {
    if (left_.rows <= 0) return;
    __builtin_prefetch(left_.data + at_, 0, 2);
    at_ += kLineBytes;
    if (at_ >= left_.row_bytes + kLineBytes - 1) {  // a row need not begin with a line
      at_ = 0;
      left_.data += left_.apart;
      --left_.rows;
    }
  }

 private:
  Ahead left_;
  int64_t at_ = 0;
};

// How A is stored. What is constant here is part of the addresses in the innermost loop.
struct ByRows {
  static HWY_INLINE int64_t row_bytes(const PanelProduct& p) { return p.a_row_bytes; }
  static HWY_INLINE int64_t cell_bytes(const PanelProduct&) { return sizeof(float); }
};
struct ByDepth {
  static HWY_INLINE int64_t row_bytes(const PanelProduct&) { return sizeof(float); }
  static HWY_INLINE int64_t cell_bytes(const PanelProduct& p) { return p.a_cell_bytes; }
};

// a: kRows rows of p; b: a panel, of which kVecs vectors count.
template <class Type, class Stored, int kRows, int kVecs>
HWY_NOINLINE void tile(const PanelProduct& p, const char* HWY_RESTRICT a, const float* HWY_RESTRICT b, const Target& to,
                       Lines& ahead) {
  constexpr int64_t kCellsPerLine = 4;  // more lines would wait for each other
  const D d;
  const int64_t row_bytes = Stored::row_bytes(p), cell_bytes = Stored::cell_bytes(p);
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
  while (b < end) {
    ahead.prefetch_next();
    const float* const stop = end - b > kCellsPerLine * kPanel ? b + kCellsPerLine * kPanel : end;
    for (; b < stop; b += kPanel, a += cell_bytes) {
      Vec columns[kVecs];
      for (int v = 0; v < kVecs; ++v) columns[v] = hn::Load(d, b + v * kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const Vec row = hn::Set(d, cell_at(a + r * row_bytes));
        for (int v = 0; v < kVecs; ++v) Type::multiply_add(row, columns[v], sums[r][v]);
      }
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
template <class Type, class Stored, int kRows, int kVecs>
HWY_NOINLINE void part_of_tile(const PanelProduct& p, const char* a, const float* b, const Target& to, int64_t columns,
                               Lines& ahead) {
  constexpr int64_t kWidth = kVecs * kLanes;
  float sums[kRows * kWidth];
  tile<Type, Stored, kRows, kVecs>(p, a, b, {sums, kWidth, nullptr, false}, ahead);
  for (int r = 0; r < kRows; ++r) {
    float* c = to.c + r * to.ldc;
    for (int64_t i = 0; i < columns; ++i) {
      c[i] = (to.add ? c[i] : 0.0f) + (to.bias ? to.bias[i] : 0.0f) + sums[r * kWidth + i];
    }
  }
}

// kRows rows, which stay in the first-level cache, with all panels, which stream from the second.
template <class Type, class Stored, int kRows>
HWY_INLINE void tile_rows(const PanelProduct& p, int64_t row, Lines& ahead) {
  const char* a = static_cast<const char*>(p.a) + row * Stored::row_bytes(p);
  for (int64_t column = 0; column < p.n; column += kPanel) {
    const int64_t columns = std::min(kPanel, p.n - column);
    const float* b = p.b + column * p.cells;
    const Target to{p.c + row * p.ldc + column, p.ldc, p.bias ? p.bias + column : nullptr, p.add};
    if (columns == kPanel) {
      tile<Type, Stored, kRows, kTileVecs>(p, a, b, to, ahead);
    } else if (columns > kLanes) {
      part_of_tile<Type, Stored, kRows, kTileVecs>(p, a, b, to, columns, ahead);
    } else {
      part_of_tile<Type, Stored, kRows, 1>(p, a, b, to, columns, ahead);
    }
  }
}

template <class Type, class Stored>
void multiply_stored(const PanelProduct& p) {
  constexpr int kThird = kTileRows / 3;  // the last rows, which do not fill a tile, take smaller ones
  Lines ahead(p.ahead);
  int64_t row = 0;
  for (; row + kTileRows <= p.m; row += kTileRows) tile_rows<Type, Stored, kTileRows>(p, row, ahead);
  for (; row + kThird <= p.m; row += kThird) tile_rows<Type, Stored, kThird>(p, row, ahead);
  for (; row < p.m; ++row) tile_rows<Type, Stored, 1>(p, row, ahead);
}

template <class Type>
void multiply(const PanelProduct& p) {
  if (p.a_cell_bytes == sizeof(float)) return multiply_stored<Type, ByRows>(p);
  multiply_stored<Type, ByDepth>(p);
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

// Panels or strips, kWidth wide.
template <class Make, int64_t kWidth>
void pack(const PanelPacking& p) {
  using Number = typename Make::Number;
  constexpr int64_t kAhead = 12;  // cells: rows may be pages apart, where the hardware does not look ahead
  constexpr int64_t kLine = kLineBytes / sizeof(Number);
  constexpr int64_t kVecs = (kWidth + kLanes - 1) / kLanes;
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
    // Vectors may be wider than a strip: what they write behind its row is overwritten by the next one, if there is
    // one.
    const bool by_vectors = whole && (kVecs * kLanes == kWidth || cell + 1 < p.cells);
    const int64_t last = by_vectors ? p.n - kVecs * kLanes : -1;
    for (int64_t i = 0; i < p.n; i += kWidth) {
      float* to = p.to + i * p.cells + cell * kWidth;
      if (i <= last) {
        for (int64_t at = 0; at < kWidth; at += kLanes) hn::StoreU(Make::vector(row + i + at, p.ld), D(), to + at);
        continue;
      }
      const int64_t count = std::min(kWidth, p.n - i);
      int64_t at = 0;
      for (; at < count; ++at) to[at] = whole ? Make::one(row + i + at, p.ld) : Make::half(row + i + at);
      for (; at < kWidth; ++at) to[at] = 0.0f;
    }
  }
}

}  // namespace

void fill_panels(Kernels& table) {
  table.panels = {.tile_rows = kTileRows,
                  .panel = kPanel,
                  .fast_by_depth = kTileRows >= 12,
                  .floats = multiply<Floats>,
                  .pairs = nullptr,
                  .pack_floats = pack<MakeFloats, kPanel>,
                  .pack_pairs = pack<MakePairs, kPanel>,
                  .strip_pairs = pack<MakePairs, kTileRows>};
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
