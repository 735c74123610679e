#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "simd/attention.h"
#include "simd/convert.h"
#include "simd/layers.h"
#include "simd/matvec.h"
#include "simd/narrow.h"
#include "simd/optimizer.h"
#include "simd/panels.h"
#include "simd/prefetch.h"

// The vector kernels of the library, one table per SIMD target. This header is plain C++: the callers are written in
// terms of small matrices and never see a vector type.
//
// Matrices are row-major floats. Every row is padded to a multiple of kPad floats, starts on a 64-byte boundary, and
// its padding holds zeros (or finite values where the other operand's padding is zero), so no kernel has a tail loop.
// "rows" counts rows, "n" padded columns, "ld*" the distance between rows.

namespace deltanet::simd {

inline constexpr int64_t kPad = 16;    // floats: one AVX-512 register, two AVX2 registers
inline constexpr int64_t kChunk = 16;  // tokens per chunk; also the side of every triangular matrix

constexpr int64_t padded(int64_t n) { return (n + kPad - 1) / kPad * kPad; }
// Row distance for K x V matrices that are walked in narrow column panels: never a multiple of 4 KiB over few rows, so
// that the rows of a panel do not fight for the same cache sets.
constexpr int64_t panel_stride(int64_t n) { return padded(n) + kPad; }

// What happens to C before the product is added.
enum class Into {
  kSet,        // C = A B
  kAdd,        // C = C + A B
  kRowScale,   // C = diag(s) C + A B
  kColScale,   // C = C diag(s) + A B
  kSetScaled,  // C = diag(s) A B
  kSubScaled,  // C = C - diag(s) A B
};

struct Gemm {
  int64_t m, n, depth;  // C is m x n, m and n multiples of 16
  const float* a;       // kRows: A[m][depth]; kCols: A stored transposed, [depth][m]
  int64_t lda;
  const float* b;  // [depth][n]
  int64_t ldb;
  float* c;
  int64_t ldc;
  const float* scale = nullptr;  // s: [m], but [n] for kColScale
  const float* from = nullptr;   // what C is before the product, if not in c itself; row distance ldc
  Prefetcher* ahead = nullptr;   // what to ask for between tiles
};

// The second-moment scan and the diagonal preconditioner built from it, for up to kChunk tokens:
//   A_t = alpha_t A_{t-1} + beta_t k_t*k_t,   B_t = f(A),   y_t = B_t * x_t   (x is k or q).
// What the tokens of a call add is summed by itself and joins what A was before once per call: A is rounded once per
// chunk, and not once per token.
enum class PrecondKind {
  kStableFast,       // B = exp(e0 + e1 s), s = r/(1+|r|), r = log(A_t + eps) - center
  kStableTanh,       //                     s = tanh r
  kInverse,          // B = 1/(A_t + ridge)          (query side)
  kInversePrevious,  // B = 1/(A_{t-1} + ridge)      (key side, Sherman-Morrison)
};

// B as a function of s in [-1, 1], exp(e0 + e1 s): a polynomial in s for tanh, in s ln 2 for the fast squash (whose
// kernel works in logarithms to base 2), highest power first. With |e1| <= log 2 seven terms are good to 1e-7; six
// where the range parameter is at most 1.5, the paper's.
struct SquashCurve {
  static constexpr int kTerms = 7;
  float coefficients[kTerms];  // the first is 0 if six terms suffice
  float slope;                 // dB/dA = slope B s'/(A + eps), s' = ds/dr, in the same unit
};

struct PrecondScan {
  PrecondKind kind;
  int64_t rows, n;     // tokens and padded key dimension
  const float* k;      // [rows][n]
  const float* x;      // [rows][n]: what B multiplies
  const float* alpha;  // decay of A: [rows], or [rows][n] if alpha_is_row
  bool alpha_is_row;
  const float* total;  // of all rows together: one value, or [n] if alpha_is_row
  const float* beta;   // [rows]
  float eps, center;   // stable kinds
  const SquashCurve* curve;
  const float* ridge;  // [n], inverse kinds
  float* A;            // [n] state, updated
  float* y;            // [rows][n], may be x for the inverse kinds; null: only A is wanted
  // Kept for the backward pass, [rows][n] each; null in a plain forward.
  float* A_previous;  // A_{t-1}
  float* B;
  float* slope;  // dB/dA
};

struct PrecondScanGrad {
  PrecondKind kind;
  int64_t rows, n;
  const float* k;
  const float* x;
  const float* alpha;
  bool alpha_is_row;
  const float* beta;
  float eps;
  const float *A_previous, *B, *slope;  // from the forward scan
  const float* dy;                      // [rows][n]
  float* dA;                            // [n]: gradient of the state after the last row in, before the first row out
  float* dk;                            // [rows][n], added to
  float* dx;                            // [rows][n], added to; may equal dk
  float* dalpha_log;                    // gradient of log alpha: [rows] set, or [rows][n] added to if alpha_is_row
  float* dbeta;                         // [rows], set
  float* dridge;                        // [n], added to (inverse kinds)
  float* dcenter;                       // one value, added to (stable kinds)
};

// Interactions inside one chunk under a diagonal decay. For tokens i >= j, with w_j^(i) = w_j * alpha_{j+1} * ... *
// alpha_i:
//   P_ij = q_i . w_j^(i)  (j <= i),      M_ij = e_i . w_j^(i-1)  (j < i: e reads before the token's decay)
// Only products of decays are ever formed: nothing overflows and nothing is divided.
struct DiagIntra {
  int64_t n;
  const float *e, *q, *w;  // [kChunk][n]; e null for offline rows, q null if P is not wanted
  const float* alpha;      // [kChunk][n]
  float *M, *P;            // [kChunk][ldm]
  int64_t ldm;
  float* w_end;  // [kChunk][n]: w_j decayed to the end of the chunk
};

struct DiagIntraGrad {
  DiagIntra forward;     // inputs as above; M, P, w_end unused
  const float *dM, *dP;  // [kChunk][lddm]
  int64_t lddm;
  const float* dw_end;  // [kChunk][n]
  float *de, *dq, *dw;  // [kChunk][n], added to
  float* dalpha_log;    // [kChunk][n], added to: gradient of log alpha
  float* scratch;       // [kChunk][n]
};

// One token of one value head, S is [k_rows][v]:
//   d = v - S^T e;  o = S^T q + (w.q) d;  S = diag(alpha) S + w d^T   (e, q are already multiplied by the decay)
// DPLR (k2 given) has a decay vector, no v, and adds the write k2 v2^T. Offline rows have e null.
struct Step {
  int64_t k_rows, n;  // key rows (unpadded), value columns (unpadded)
  float* S;
  int64_t lds;
  const float* alpha;  // [k_rows], or null for one value for all rows
  float alpha_scalar;
  const float *e, *q, *w;  // [k_rows]
  float w_dot_q;
  const float* k2 = nullptr;
  float k2_dot_q = 0.0f;
  const float* v2 = nullptr;  // [n]
  const float* v;             // [n]
  float* o;                   // [n]
};

struct Kernels {
  void (*gemm_rows)(Into, const Gemm&);  // A row-major
  void (*gemm_cols)(Into, const Gemm&);  // A stored transposed
  // C = A B, A row-major, n = kChunk, of each kChunk x kChunk square of C only the lower triangle; others are
  // undefined.
  void (*gram)(const Gemm&);

  // Triangular products with a kChunk x kChunk matrix L (row distance ldl) over n columns; only the named triangle is
  // read.
  void (*solve_lower)(const float* L, int64_t ldl, int64_t n, float* X, int64_t ldx);  // X <- (I + L)^-1 X, strict L
  void (*solve_upper)(const float* L, int64_t ldl, int64_t n, float* X, int64_t ldx);  // X <- (I + L^T)^-1 X, strict L
  void (*add_lower)(const float* L, int64_t ldl, int64_t n, const float* X, int64_t ldx, float* Y,
                    int64_t ldy);  // Y += L X
  void (*add_upper)(const float* L, int64_t ldl, int64_t n, const float* X, int64_t ldx, float* Y,
                    int64_t ldy);  // Y += L^T X
  void (*sub_strict_lower)(const float* L, int64_t ldl, int64_t n, const float* X, int64_t ldx, float* Y, int64_t ldy);
  void (*sub_strict_upper)(const float* L, int64_t ldl, int64_t n, const float* X, int64_t ldx, float* Y, int64_t ldy);

  // y [n][rows] = x^T; rows a multiple of 8, n of 4; x need not be aligned
  void (*transpose)(int64_t rows, int64_t n, const float* x, int64_t ldx, float* y, int64_t ldy);

  // exp(x), infinity from 88.4 on, NaN of NaN; count multiple of 16.
  void (*exp_rows)(int64_t count, const float* x, float* y);
  // Logarithms of decays x [rows][n] become decays, and total [n] the decay over all rows: from the sum of the
  // logarithms where it is gentle, so that many chunks of slow decays do not add up a rounding per token.
  void (*decay_rows)(int64_t rows, int64_t n, float* x, float* total);
  void (*scale_rows)(int64_t rows, int64_t n, const float* s, const float* x, int64_t ldx, float* y, int64_t ldy);
  void (*add_scaled_rows)(int64_t rows, int64_t n, const float* s, const float* x, int64_t ldx, float* y, int64_t ldy);
  void (*mul_rows)(int64_t rows, int64_t n, const float* a, const float* x, float* y);      // y = a*x
  void (*add_mul_rows)(int64_t rows, int64_t n, const float* a, const float* x, float* y);  // y += a*x
  void (*dot_rows)(int64_t rows, int64_t n, const float* x, int64_t ldx, const float* y, int64_t ldy, float* out);
  // out_j = sum_i x_ij y_ij, or added to out if `add`.
  void (*dot_cols)(int64_t rows, int64_t n, const float* x, int64_t ldx, const float* y, int64_t ldy, bool add,
                   float* out);
  // y = scale x / sqrt(x.x + eps); keeps 1/sqrt(x.x + eps). The rows of x need no alignment; x may be y.
  void (*l2norm_rows)(int64_t rows, int64_t n, float eps, float scale, const float* x, int64_t ldx, float* y,
                      float* inverse_norm);
  // With scale 1, in place: dy becomes dx.
  void (*l2norm_rows_grad)(int64_t rows, int64_t n, const float* y, const float* inverse_norm, float* dy);

  void (*precond_scan)(const PrecondScan&);
  void (*precond_scan_grad)(const PrecondScanGrad&);
  void (*diag_intra)(const DiagIntra&);
  void (*diag_intra_grad)(const DiagIntraGrad&);
  void (*step)(const Step&);

  LayerKernels layers;
  ConvertKernels convert;
  MatvecKernels matvec;  // few rows of activations times weights
  PanelKernels panels;   // many rows
  OptimizerKernels optimizer;
  NarrowKernels narrow;  // bfloat16 and int8

  double (*fma_peak)(double seconds);  // measured GFLOP/s of independent fused multiply-adds on one core
  void (*plain_step)(const Step&);     // the four-pass loop that the benchmark compares `step` with

  AttentionKernels attention;
};

// The table of the target in use.
const Kernels& kernels();

std::vector<std::string> target_names();  // supported by this CPU, best first
std::string target_name();
bool select_target(std::string_view name);  // false: not among target_names(); "" selects the best

}  // namespace deltanet::simd
