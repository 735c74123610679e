#pragma once

#include <cstdint>

// Tiles of products whose second factor has been put into panels: as wide as a tile, one row of it after the other, so
// that a tile reads it in one run. A cell is what a lane multiplies at once: a float, or a pair of bfloat16 numbers
// that follow each other along the depth.

namespace deltanet::simd {

// C [m,n] = A B + bias, or added to C.
struct PanelProduct {
  int64_t m, n, cells;  // cells: the depth
  const void* a;        // rows a_row_bytes apart; need not be aligned
  int64_t a_row_bytes;
  bool half_cell;  // the last cell of a row of A has one number
  const float* b;  // [ceil(n / panel)][cells][panel], aligned; its last panel is filled up with zeros
  float* c;
  int64_t ldc;
  const float* bias;  // [n] or null
  bool add;
};

// Panels of a factor that is stored [depth][n].
struct PanelPacking {
  int64_t n, cells, depth;
  const void* from;
  int64_t ld;
  float* to;
};

struct PanelKernels {
  int64_t tile_rows, panel;
  void (*floats)(const PanelProduct&);
  void (*pairs)(const PanelProduct&);  // null where the processor has no instruction for it
  void (*pack_floats)(const PanelPacking&);
  void (*pack_pairs)(const PanelPacking&);
};

}  // namespace deltanet::simd
