#pragma once

#include <cstdint>

// Tiles of products whose second factor has been put into panels: as wide as a tile, one row of it after the other, so
// that a tile reads it in one run. Strips are the same of a first factor that is stored by depth: as wide as a tile has
// rows. A cell is what a lane multiplies at once: a float, or a pair of bfloat16 numbers that follow each other along
// the depth.

namespace deltanet::simd {

// Rows of bytes that will be read next. Tiles bring them into the second-level cache while they compute.
struct Ahead {
  const char* data = nullptr;
  int64_t rows = 0, row_bytes = 0, apart = 0;  // apart: from a row to the next
};

// C [m,n] = A B + bias, or added to C.
struct PanelProduct {
  int64_t m, n, cells;      // cells: the depth
  const void* a = nullptr;  // need not be aligned
  // Bytes from a cell to the one below it and to the next one of its row. One of them is sizeof(float): A is stored by
  // rows or by depth.
  int64_t a_row_bytes = 0, a_cell_bytes = 0;
  bool half_cell = false;  // the last cell of a row of A, stored by rows, has one number
  const float* b;          // [ceil(n / panel)][cells][panel], aligned; its last panel is filled up with zeros
  float* c;
  int64_t ldc;
  const float* bias;  // [n] or null
  bool add;
  Ahead ahead = {};
};

// Panels or strips of a factor that is stored [depth][n]: [ceil(n / width)][cells][width], the last one filled up with
// zeros.
struct PanelPacking {
  int64_t n, cells, depth;
  const void* from;
  int64_t ld;
  float* to;
};

struct PanelKernels {
  int64_t tile_rows, panel;
  bool fast_by_depth;  // tiles have enough rows to read floats that are stored by depth as they are
  void (*floats)(const PanelProduct&);
  void (*pairs)(const PanelProduct&);  // null where the processor has no instruction for it
  void (*pack_floats)(const PanelPacking&);
  void (*pack_pairs)(const PanelPacking&);
  void (*strip_pairs)(const PanelPacking&);
};

}  // namespace deltanet::simd
