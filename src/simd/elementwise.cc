// Elementwise and row-wise kernels.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/elementwise.cc"
#include "hwy/foreach_target.h"

#include <cmath>
#include <limits>

#include "hwy/highway.h"
#include "simd/layers-inl.h"
#include "simd/modules.h"

HWY_BEFORE_NAMESPACE();
namespace deltanet::simd {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE float sum(Vec v) { return hn::GetLane(hn::SumOfLanes(D(), v)); }

HWY_INLINE float dot(int64_t n, const float* HWY_RESTRICT x, const float* HWY_RESTRICT y) {
  // Four chains, because each multiply-add of one chain waits for the one before.
  const D d;
  Vec acc[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int c = 0; c < 4; ++c) {
      acc[c] = hn::MulAdd(hn::LoadU(d, x + i + c * kLanes), hn::LoadU(d, y + i + c * kLanes), acc[c]);
    }
  }
  for (; i < n; i += kLanes) acc[0] = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), acc[0]);
  return sum(hn::Add(hn::Add(acc[0], acc[1]), hn::Add(acc[2], acc[3])));
}

void exp_rows(int64_t count, const float* HWY_RESTRICT x, float* HWY_RESTRICT y) {
  const D d;
  for (int64_t i = 0; i < count; i += kLanes) hn::Store(exp_of(hn::Load(d, x + i)), d, y + i);
}

void decay_rows(int64_t rows, int64_t n, float* HWY_RESTRICT x, float* HWY_RESTRICT total) {
  const D d;
  for (int64_t i = 0; i < n; i += kLanes) {
    Vec sum = hn::Zero(d), product = hn::Set(d, 1.0f);
    for (int64_t r = 0; r < rows; ++r) {
      const Vec log_decay = hn::Load(d, x + r * n + i);
      const Vec decay = exp_of(log_decay);
      hn::Store(decay, d, x + r * n + i);
      sum = hn::Add(sum, log_decay);
      product = hn::Mul(product, decay);
    }
    const auto gentle = hn::Gt(sum, hn::Set(d, -1.0f));
    hn::Store(hn::IfThenElse(gentle, exp_of(sum), product), d, total + i);
  }
}

void scale_rows(int64_t rows, int64_t n, const float* s, const float* x, int64_t ldx, float* y, int64_t ldy) {
  const D d;
  for (int64_t r = 0; r < rows; ++r, x += ldx, y += ldy) {
    const Vec factor = hn::Set(d, s[r]);
    for (int64_t i = 0; i < n; i += kLanes) hn::Store(hn::Mul(factor, hn::Load(d, x + i)), d, y + i);
  }
}

void add_scaled_rows(int64_t rows, int64_t n, const float* s, const float* x, int64_t ldx, float* y, int64_t ldy) {
  const D d;
  for (int64_t r = 0; r < rows; ++r, x += ldx, y += ldy) {
    const Vec factor = hn::Set(d, s[r]);
    for (int64_t i = 0; i < n; i += kLanes) {
      hn::Store(hn::MulAdd(factor, hn::Load(d, x + i), hn::Load(d, y + i)), d, y + i);
    }
  }
}

void mul_rows(int64_t rows, int64_t n, const float* a, const float* x, float* y) {
  const D d;
  for (int64_t i = 0; i < rows * n; i += kLanes) hn::Store(hn::Mul(hn::Load(d, a + i), hn::Load(d, x + i)), d, y + i);
}

void add_mul_rows(int64_t rows, int64_t n, const float* a, const float* x, float* y) {
  const D d;
  for (int64_t i = 0; i < rows * n; i += kLanes) {
    hn::Store(hn::MulAdd(hn::Load(d, a + i), hn::Load(d, x + i), hn::Load(d, y + i)), d, y + i);
  }
}

void dot_rows(int64_t rows, int64_t n, const float* x, int64_t ldx, const float* y, int64_t ldy, float* out) {
  for (int64_t r = 0; r < rows; ++r) out[r] = dot(n, x + r * ldx, y + r * ldy);
}

void dot_cols(int64_t rows, int64_t n, const float* x, int64_t ldx, const float* y, int64_t ldy, bool add, float* out) {
  const D d;
  for (int64_t i = 0; i < n; i += kLanes) {
    Vec acc = hn::Zero(d);
    for (int64_t r = 0; r < rows; ++r)
      acc = hn::MulAdd(hn::Load(d, x + r * ldx + i), hn::Load(d, y + r * ldy + i), acc);
    hn::Store(add ? hn::Add(hn::Load(d, out + i), acc) : acc, d, out + i);
  }
}

void l2norm_rows(int64_t rows, int64_t n, float eps, float scale, const float* x, int64_t ldx, float* y,
                 float* inverse_norm) {
  const D d;
  for (int64_t r = 0; r < rows; ++r, x += ldx, y += n) {
    const float square = dot(n, x, x);
    // The square of a row may overflow; divided by infinity, the row would be a healthy zero.
    inverse_norm[r] = square <= std::numeric_limits<float>::max() ? 1.0f / std::sqrt(square + eps)
                                                                  : std::numeric_limits<float>::quiet_NaN();
    const Vec factor = hn::Set(d, scale * inverse_norm[r]);
    for (int64_t i = 0; i < n; i += kLanes) hn::Store(hn::Mul(factor, hn::LoadU(d, x + i)), d, y + i);
  }
}

// y = x r, r = (x.x + eps)^-1/2, so dx = r (dy - y (y.dy)).
void l2norm_rows_grad(int64_t rows, int64_t n, const float* y, const float* inverse_norm, float* dy) {
  const D d;
  for (int64_t r = 0; r < rows; ++r, y += n, dy += n) {
    const Vec along = hn::Set(d, dot(n, y, dy));
    const Vec factor = hn::Set(d, inverse_norm[r]);
    for (int64_t i = 0; i < n; i += kLanes) {
      const Vec across = hn::NegMulAdd(along, hn::Load(d, y + i), hn::Load(d, dy + i));
      hn::Store(hn::Mul(factor, across), d, dy + i);
    }
  }
}

}  // namespace

void fill_rows(Kernels& table) {
  table.exp_rows = exp_rows;
  table.decay_rows = decay_rows;
  table.scale_rows = scale_rows;
  table.add_scaled_rows = add_scaled_rows;
  table.mul_rows = mul_rows;
  table.add_mul_rows = add_mul_rows;
  table.dot_rows = dot_rows;
  table.dot_cols = dot_cols;
  table.l2norm_rows = l2norm_rows;
  table.l2norm_rows_grad = l2norm_rows_grad;
}

}  // namespace HWY_NAMESPACE
}  // namespace deltanet::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltanet::simd {
HWY_EXPORT(fill_rows);
void add_rows(Kernels& table) { HWY_DYNAMIC_DISPATCH(fill_rows)(table); }
}  // namespace deltanet::simd
#endif
