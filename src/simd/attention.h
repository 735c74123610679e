#pragma once

#include <cstdint>
#include <limits>

// Kernels of softmax attention. Plain C++, like kernels.h, whose layout rules hold here too.

namespace deltanet::simd {

// What a running maximum is before the first key: finite, so that no difference of two of them is NaN.
inline constexpr float kNoScore = std::numeric_limits<float>::lowest();

// A block of scores, transposed: rows are keys, columns are queries. Everything per query is then one vector operation
// per row, and the keys and values are read as they lie in memory. The query columns [first + j, first + j + window)
// see key row j.
struct ScoreBlock {
  int64_t keys, n;  // rows, padded columns
  float* scores;    // [keys][ld]: q.k in, probabilities out
  int64_t ld;
  float scale2;  // log2(e) times the factor of the scores: probabilities are powers of two
  int64_t first, window;
};

// The next block of an online softmax. Columns have seen kNoScore, 0 before their first key.
struct SoftmaxBlock {
  ScoreBlock block;
  float* maximum;     // [n] of the unscaled scores so far, updated
  float* sum;         // [n] of the probabilities so far, relative to the maximum, updated
  float* correction;  // [n] out: what everything accumulated before must be multiplied by
};

// Probabilities from a known log-sum-exp and the gradient of the scores, dS = P * (dP - delta), without the factor of
// the scores.
struct SoftmaxGradBlock {
  ScoreBlock block;
  const float* lse2;   // [n]: log2 of the sum of the exponentials
  const float* delta;  // [n]: do.o
  float* dscores;      // [keys][ld]: dP in, dS out
};

// One query of several heads that share their keys, against one more block of keys; the softmax runs on as above.
struct DecodeBlock {
  int64_t keys, heads, n;  // n: padded head dimension
  const float* q;          // [heads][n]
  const float *k, *v;      // [keys][n], not aligned
  float scale2;
  float* scores;   // [heads][padded(keys)], scratch
  float* maximum;  // [heads]
  float* sum;      // [heads]
  float* o;        // [heads][n], updated
};

// Rotates the pairs (x[i], x[half + i]) of every head by the angle of its row, in place. Nothing is padded or aligned.
struct Rotation {
  int64_t rows, heads, half;
  float* x;  // [rows][heads * 2 * half]
  int64_t ldx;
  const float *cosine, *sine;  // [rows][half]
  bool inverse;
};

struct AttentionKernels {
  void (*softmax)(const SoftmaxBlock&);
  void (*softmax_grad)(const SoftmaxGradBlock&);
  void (*decode)(const DecodeBlock&);
  void (*rotate)(const Rotation&);
};

}  // namespace deltanet::simd
