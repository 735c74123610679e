// The optimizer's update and the norm of gradients: both are bound by memory.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/optimizer.cc"
#include "hwy/foreach_target.h"

#include <cmath>

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

void adamw(const AdamStep& s) {
  const D d;
  const Vec scale = hn::Set(d, s.grad_scale), blend1 = hn::Set(d, 1 - s.beta1), blend2 = hn::Set(d, 1 - s.beta2);
  const Vec step = hn::Set(d, s.lr / s.correction1), root = hn::Set(d, 1 / std::sqrt(s.correction2));
  const Vec eps = hn::Set(d, s.eps), keep = hn::Set(d, 1 - s.lr * s.weight_decay);
  int64_t i = 0;
  for (; i + kLanes <= s.count; i += kLanes) {
    const Vec g = hn::Mul(scale, hn::LoadU(d, s.grad + i));
    Vec m = hn::LoadU(d, s.m + i), v = hn::LoadU(d, s.v + i);
    m = hn::MulAdd(blend1, hn::Sub(g, m), m);
    v = hn::MulAdd(blend2, hn::Sub(hn::Mul(g, g), v), v);
    const Vec change = hn::Div(hn::Mul(step, m), hn::MulAdd(root, hn::Sqrt(v), eps));
    hn::StoreU(m, d, s.m + i);
    hn::StoreU(v, d, s.v + i);
    hn::StoreU(hn::Sub(hn::Mul(keep, hn::LoadU(d, s.p + i)), change), d, s.p + i);
  }
  for (; i < s.count; ++i) {
    const float g = s.grad_scale * s.grad[i];
    s.m[i] += (1 - s.beta1) * (g - s.m[i]);
    s.v[i] += (1 - s.beta2) * (g * g - s.v[i]);
    const float change = s.lr / s.correction1 * s.m[i] / (std::sqrt(s.v[i]) / std::sqrt(s.correction2) + s.eps);
    s.p[i] = (1 - s.lr * s.weight_decay) * s.p[i] - change;
  }
}

double sum_of_squares(int64_t count, const float* x) {
  // Squares of floats are exact in double, and a double sum of them cannot overflow.
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  constexpr int64_t kStep = HWY_LANES(double);
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * kStep <= count; i += 2 * kStep) {
    const auto a = hn::PromoteTo(d, hn::LoadU(half, x + i)), b = hn::PromoteTo(d, hn::LoadU(half, x + i + kStep));
    sum0 = hn::MulAdd(a, a, sum0);
    sum1 = hn::MulAdd(b, b, sum1);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < count; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}

}  // namespace

void fill_optimizer(Kernels& table) {
  table.optimizer.adamw = adamw;
  table.optimizer.sum_of_squares = sum_of_squares;
}

}  // namespace HWY_NAMESPACE
}  // namespace deltanet::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltanet::simd {
HWY_EXPORT(fill_optimizer);
void add_optimizer(Kernels& table) { HWY_DYNAMIC_DISPATCH(fill_optimizer)(table); }
}  // namespace deltanet::simd
#endif
