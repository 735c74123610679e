// Between float, bfloat16 and int8.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/narrow.cc"
#include "hwy/foreach_target.h"

#include <bit>
#include <cmath>

#include "hwy/highway.h"
#include "simd/modules.h"

HWY_BEFORE_NAMESPACE();
namespace deltanet::simd {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using DI32 = hn::RebindToSigned<D>;
using Vec = hn::Vec<D>;

constexpr int64_t kLanes = HWY_LANES(float);

float to_int8(int64_t count, const float* HWY_RESTRICT x, int8_t* HWY_RESTRICT q) {
  const D d;
  Vec largest = hn::Zero(d), zeros = hn::Zero(d);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Vec at = hn::LoadU(d, x + i);
    largest = hn::Max(largest, hn::Abs(at));
    zeros = hn::MulAdd(at, hn::Zero(d), zeros);  // a maximum may lose a NaN, a sum does not
  }
  float top = hn::GetLane(hn::MaxOfLanes(d, largest)), zero = hn::GetLane(hn::SumOfLanes(d, zeros));
  for (; i < count; ++i) {
    top = std::fmax(top, std::fabs(x[i]));
    zero += 0.0f * x[i];
  }
  // Where 127 / top would overflow, all values count as zero.
  constexpr float kLevels = 127.0f, kSmallest = 1e-35f;
  const float inverse = top > kSmallest ? kLevels / top : 0.0f;
  const Vec factor = hn::Set(d, inverse);
  const hn::Rebind<int8_t, D> d8;
  for (i = 0; i + kLanes <= count; i += kLanes) {
    hn::StoreU(hn::DemoteTo(d8, hn::NearestInt(hn::Mul(factor, hn::LoadU(d, x + i)))), d8, q + i);
  }
  for (; i < count; ++i) {
    const float level = std::nearbyint(inverse * x[i]);
    q[i] = std::isnan(level) ? int8_t{0} : static_cast<int8_t>(level);
  }
  return (top > kSmallest ? top / kLevels : 0.0f) + zero;
}

void from_int8(int64_t count, float scale, const int8_t* HWY_RESTRICT q, float* HWY_RESTRICT y) {
  const D d;
  const hn::Rebind<int8_t, D> d8;
  const Vec factor = hn::Set(d, scale);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Vec level = hn::ConvertTo(d, hn::PromoteTo(DI32(), hn::LoadU(d8, q + i)));
    hn::StoreU(hn::Mul(factor, level), d, y + i);
  }
  for (; i < count; ++i) y[i] = scale * static_cast<float>(q[i]);
}

void rescale(int64_t count, const int32_t* HWY_RESTRICT sums, float row_scale, const float* column_scale,
             const float* bias, bool add, float* HWY_RESTRICT y) {
  const D d;
  const Vec factor = hn::Set(d, row_scale);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Vec sum = hn::ConvertTo(d, hn::LoadU(DI32(), sums + i));
    Vec value = hn::Mul(hn::Mul(factor, hn::LoadU(d, column_scale + i)), sum);
    if (bias) value = hn::Add(value, hn::LoadU(d, bias + i));
    if (add) value = hn::Add(value, hn::LoadU(d, y + i));
    hn::StoreU(value, d, y + i);
  }
  for (; i < count; ++i) {
    float value = row_scale * column_scale[i] * static_cast<float>(sums[i]);
    if (bias) value += bias[i];
    y[i] = add ? y[i] + value : value;
  }
}

void add_column_sums(int64_t rows, int64_t n, const float* HWY_RESTRICT x, int64_t ldx, float* HWY_RESTRICT sums) {
  const D d;
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    Vec total = hn::Zero(d);
    for (int64_t r = 0; r < rows; ++r) total = hn::Add(total, hn::LoadU(d, x + r * ldx + j));
    hn::StoreU(hn::Add(hn::LoadU(d, sums + j), total), d, sums + j);
  }
  for (; j < n; ++j) {
    float total = 0.0f;
    for (int64_t r = 0; r < rows; ++r) total += x[r * ldx + j];
    sums[j] += total;
  }
}

}  // namespace

void fill_narrow(Kernels& table) {
  table.narrow.to_int8 = to_int8;
  table.narrow.from_int8 = from_int8;
  table.narrow.rescale = rescale;
  table.narrow.add_column_sums = add_column_sums;
}

}  // namespace HWY_NAMESPACE
}  // namespace deltanet::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltanet::simd {
HWY_EXPORT(fill_narrow);
void add_narrow(Kernels& table) { HWY_DYNAMIC_DISPATCH(fill_narrow)(table); }
}  // namespace deltanet::simd
#endif
