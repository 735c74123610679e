#include "nn/matmul/panels.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>

#include "base/arena.h"
#include "base/parallel.h"
#include "simd/kernels.h"

namespace deltanet::nn {
namespace {

constexpr int64_t kFloat = sizeof(float);
// A block of B fills half of a second-level cache of 1 MiB, and a tile's rows of A fit into the first-level cache.
constexpr int64_t kDepth = 512;      // cells
constexpr int64_t kBlock = 1 << 17;  // cells
constexpr int64_t kStrips = 8;       // that are made at once: reads whole lines and leaves room for the block of B
constexpr int64_t kShare = 1 << 20;  // products of cells that are worth handing to a thread
constexpr int64_t kPackingCost = 8;  // of a cell that is put into a panel, in products

int64_t ceil_of(int64_t count, int64_t parts) { return (count + parts - 1) / parts; }
int64_t round_up(int64_t count, int64_t step) { return ceil_of(count, step) * step; }

struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// The share `index` of `parts` of [0, count), in whole steps.
Range share(int64_t count, int64_t step, int64_t index, int64_t parts) {
  const int64_t size = round_up(ceil_of(count, parts), step);
  return {std::min(count, index * size), std::min(count, (index + 1) * size)};
}

// B by columns: stored [n][depth], the cells of a column are neighbors.
struct Columns {
  bool pairs;
  const char* data;
  int64_t column_bytes, depth;

  const char* at(int64_t column, int64_t cell) const { return data + column * column_bytes + cell * kFloat; }
  float cell(int64_t column, int64_t cell) const {
    const char* p = at(column, cell);
    float whole = 0.0f;
    std::memcpy(&whole, p, pairs && 2 * cell + 1 == depth ? sizeof(uint16_t) : sizeof(float));
    return whole;
  }
};

// One panel [cells][panel] of the given columns. With `more`, the columns of another one follow.
void transpose_panel(const Columns& b, Range columns, Range cells, int64_t panel, bool more, float* to) {
  constexpr int64_t kBlockCells = 64;  // the lines that are written stay in the first-level cache until they are full
  constexpr int64_t kLineBytes = 64;
  // The kernel takes eights of columns and fours of whole cells that floats can be read from.
  const bool half = b.pairs && 2 * cells.end > b.depth;
  const int64_t fast_columns = b.column_bytes % kFloat == 0 ? columns.size() / 8 * 8 : 0;
  const int64_t fast_cells = (cells.size() - half) / 4 * 4;
  for (int64_t cell = 0; cell < fast_cells && fast_columns > 0; cell += kBlockCells) {
    for (int64_t i = 0; i < fast_columns; i += 8) {
      const auto* from = reinterpret_cast<const float*>(b.at(columns.begin + i, cells.begin + cell));
      for (int64_t next = panel; more && next < panel + 8; ++next) {
        const char* column = b.at(columns.begin + i + next, cells.begin + cell);
        for (int64_t at = 0; at < kBlockCells * kFloat; at += kLineBytes) __builtin_prefetch(column + at, 0, 2);
      }
      simd::kernels().transpose(8, std::min(kBlockCells, fast_cells - cell), from, b.column_bytes / kFloat,
                                to + cell * panel + i, panel);
    }
  }
  for (int64_t i = 0; i < panel; ++i) {
    for (int64_t cell = i < fast_columns ? fast_cells : 0; cell < cells.size(); ++cell) {
      to[cell * panel + i] = i < columns.size() ? b.cell(columns.begin + i, cells.begin + cell) : 0.0f;
    }
  }
}

class Product {
 public:
  explicit Product(const Matmul& p)
      : p_(p),
        kernels_(simd::kernels().panels),
        pairs_(p.type == WeightType::kBfloat16),
        number_bytes_(pairs_ ? sizeof(uint16_t) : sizeof(float)),
        cells_(pairs_ ? ceil_of(p.depth, 2) : p.depth) {}

  void run(int threads) const {
    const Grid grid = best_grid(threads);
    parallel_for(threads, grid.rows * grid.columns, [&](int64_t i) {
      run_share(share(p_.m, kernels_.tile_rows, i / grid.columns, grid.rows),
                share(p_.n, kernels_.panel, i % grid.columns, grid.columns));
    });
  }

 private:
  struct Grid {
    int64_t rows, columns;
  };

  // Each share makes its own panels, so that none waits for another: cuts where the least is made twice.
  Grid best_grid(int threads) const {
    const int64_t shares = std::clamp<int64_t>(p_.m * p_.n * cells_ / kShare, 1, threads);
    Grid best{1, 1};
    int64_t least = std::numeric_limits<int64_t>::max();
    for (int64_t rows = 1; rows <= shares; ++rows) {
      const Grid grid{rows, shares / rows};
      const int64_t m = round_up(ceil_of(p_.m, grid.rows), kernels_.tile_rows);
      const int64_t n = round_up(ceil_of(p_.n, grid.columns), kernels_.panel);
      const int64_t cost = m * n + kPackingCost * n;
      if (cost < least) least = cost, best = grid;
    }
    return best;
  }

  void run_share(Range m, Range n) const {
    thread_local Arena arena;
    arena.reset();
    const int64_t panel = kernels_.panel, deepest = std::clamp<int64_t>(cells_, 1, kDepth);
    const int64_t width = std::min(round_up(n.size(), panel), kBlock / deepest / panel * panel);
    float* panels = arena.take(width * deepest);
    float* strips = by_strips() ? arena.take(kStrips * kernels_.tile_rows * deepest) : nullptr;
    // A depth of 0 has one block too: C is the bias then.
    int64_t cell = 0;
    do {
      const Range depth{cell, std::min(cells_, cell + kDepth)};
      for (int64_t column = n.begin; column < n.end; column += width) {
        const Range columns{column, std::min(n.end, column + width)};
        pack(columns, depth, panels);
        if (strips) {
          multiply_strips(m, columns, depth, strips, panels);
        } else {
          multiply(m, columns, depth, panels);
        }
      }
      cell = depth.end;
    } while (cell < cells_);
  }

  bool by_strips() const { return p_.a_transposed && pairs_; }

  Range numbers(Range cells) const {
    const int64_t count = kFloat / number_bytes_;
    return {cells.begin * count, std::min(cells.end * count, p_.depth)};
  }

  void pack(Range columns, Range depth, float* panels) const {
    if (!p_.b_transposed) {
      const auto kernel = pairs_ ? kernels_.pack_pairs : kernels_.pack_floats;
      return kernel(packing(p_.b, p_.ldb, columns, depth, panels));
    }
    const Columns stored{pairs_, static_cast<const char*>(p_.b), p_.ldb * number_bytes_, p_.depth};
    const int64_t panel = kernels_.panel;
    for (int64_t i = columns.begin; i < columns.end; i += panel) {
      const bool more = i + 2 * panel <= columns.end;
      transpose_panel(stored, {i, std::min(columns.end, i + panel)}, depth, panel, more,
                      panels + (i - columns.begin) * depth.size());
    }
  }

  // Of columns of a factor that is stored [depth][...].
  simd::PanelPacking packing(const void* from, int64_t ld, Range columns, Range depth, float* to) const {
    const int64_t first = numbers(depth).begin;
    return {.n = columns.size(),
            .cells = depth.size(),
            .depth = p_.depth - first,
            .from = static_cast<const char*>(from) + (first * ld + columns.begin) * number_bytes_,
            .ld = ld,
            .to = to};
  }

  // A part of A as it is stored; of nothing, nothing.
  simd::Ahead part_of_a(Range rows, Range columns) const {
    if (rows.size() == 0 || columns.size() == 0) return {};
    const int64_t apart = p_.lda * number_bytes_;
    return {static_cast<const char*>(p_.a) + rows.begin * apart + columns.begin * number_bytes_, rows.size(),
            columns.size() * number_bytes_, apart};
  }

  Range next_after(Range part, Range all) const { return {part.end, std::min(all.end, part.end + part.size())}; }

  // C [m,n], or its sums over a part of the depth, but for A.
  simd::PanelProduct product(Range m, Range n, Range depth, const float* panels) const {
    return {.m = m.size(),
            .n = n.size(),
            .cells = depth.size(),
            .b = panels,
            .c = static_cast<float*>(p_.c) + m.begin * p_.ldc + n.begin,
            .ldc = p_.ldc,
            .bias = p_.bias && depth.begin == 0 ? p_.bias + n.begin : nullptr,
            .add = p_.add || depth.begin > 0};
  }

  void run_kernel(const simd::PanelProduct& product) const { (pairs_ ? kernels_.pairs : kernels_.floats)(product); }

  // Tiles read A where it is, and ask for the rows of the next tiles.
  void multiply(Range m, Range n, Range depth, const float* panels) const {
    const Range along = numbers(depth);
    const auto stored = [&](Range rows) { return p_.a_transposed ? part_of_a(along, rows) : part_of_a(rows, along); };
    for (Range rows{m.begin, m.begin}; rows.end < m.end;) {
      rows = {rows.end, std::min(m.end, rows.end + kernels_.tile_rows)};
      simd::PanelProduct part = product(rows, n, depth, panels);
      const simd::Ahead a = stored(rows);
      part.a = a.data;
      part.a_row_bytes = p_.a_transposed ? kFloat : a.apart;
      part.a_cell_bytes = p_.a_transposed ? a.apart : kFloat;
      part.half_cell = pairs_ && 2 * depth.end > p_.depth;
      part.ahead = stored(next_after(rows, m));
      run_kernel(part);
    }
  }

  // A is put into strips, and each of them asks for its share of the columns that the next ones are made of.
  void multiply_strips(Range m, Range n, Range depth, float* strips, const float* panels) const {
    for (Range group{m.begin, m.begin}; group.end < m.end;) {
      group = {group.end, std::min(m.end, group.end + kStrips * kernels_.tile_rows)};
      kernels_.strip_pairs(packing(p_.a, p_.lda, group, depth, strips));
      for (int64_t row = group.begin, strip = 0; row < group.end; row += kernels_.tile_rows, ++strip) {
        simd::PanelProduct part = product({row, std::min(group.end, row + kernels_.tile_rows)}, n, depth, panels);
        part.a = strips + strip * kernels_.tile_rows * depth.size();
        part.a_row_bytes = kFloat;
        part.a_cell_bytes = kernels_.tile_rows * kFloat;
        const Range along = numbers(depth), slice = share(along.size(), 1, strip, kStrips);
        part.ahead = part_of_a({along.begin + slice.begin, along.begin + slice.end}, next_after(group, m));
        run_kernel(part);
      }
    }
  }

  const Matmul& p_;
  const simd::PanelKernels& kernels_;
  bool pairs_;
  int64_t number_bytes_, cells_;
};

}  // namespace

bool panels_multiply(const Matmul& product) {
  const simd::PanelKernels& kernels = simd::kernels().panels;
  if (product.type == WeightType::kFloat32) return !product.a_transposed || kernels.fast_by_depth;
  return product.type == WeightType::kBfloat16 && kernels.pairs != nullptr;
}

void panels_matmul(const Matmul& product, int threads) {
  assert(threads >= 1 && panels_multiply(product));
  Product(product).run(threads);
}

}  // namespace deltanet::nn
