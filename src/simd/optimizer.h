#pragma once

#include <cstdint>

namespace deltanet::simd {

// One step of AdamW with decoupled weight decay on `count` parameters, in place:
//   g = grad_scale grad,  m += (1-beta1)(g - m),  v += (1-beta2)(g g - v)
//   p -= lr (m/correction1 / (sqrt(v/correction2) + eps) + weight_decay p)
struct AdamStep {
  int64_t count;
  const float* grad;
  float *p, *m, *v;
  float grad_scale, lr, beta1, beta2, eps, weight_decay;
  float correction1, correction2;  // 1 - beta^t
};

struct OptimizerKernels {
  void (*adamw)(const AdamStep&);
  double (*sum_of_squares)(int64_t count, const float* x);  // not finite if any value is not
};

}  // namespace deltanet::simd
