#include "train/adamw.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "simd/kernels.h"

namespace deltanet {
namespace {

constexpr int64_t kBlock = int64_t{1} << 18;

}  // namespace

AdamW::AdamW(int64_t count, const AdamWOptions& options)
    : options_(options), m_(static_cast<std::size_t>(count)), v_(static_cast<std::size_t>(count)) {}

void AdamW::step(float* parameters, const float* gradients, float grad_scale, double lr, int threads) {
  ++steps_;
  const auto t = static_cast<double>(steps_);
  const simd::AdamStep all{.count = 0,
                           .grad = gradients,
                           .p = parameters,
                           .m = m_.data(),
                           .v = v_.data(),
                           .grad_scale = grad_scale,
                           .lr = static_cast<float>(lr),
                           .beta1 = static_cast<float>(options_.beta1),
                           .beta2 = static_cast<float>(options_.beta2),
                           .eps = static_cast<float>(options_.eps),
                           .weight_decay = static_cast<float>(options_.weight_decay),
                           .correction1 = static_cast<float>(1 - std::pow(options_.beta1, t)),
                           .correction2 = static_cast<float>(1 - std::pow(options_.beta2, t))};
  parallel_blocks(threads, static_cast<int64_t>(m_.size()), kBlock, [&](int64_t begin, int64_t end) {
    simd::AdamStep part = all;
    part.count = end - begin;
    part.grad += begin;
    part.p += begin;
    part.m += begin;
    part.v += begin;
    simd::kernels().optimizer.adamw(part);
  });
}

double squared_norm(const float* values, int64_t count, int threads) {
  std::vector<double> sums(static_cast<std::size_t>((count + kBlock - 1) / kBlock));
  parallel_blocks(threads, count, kBlock, [&](int64_t begin, int64_t end) {
    sums[static_cast<std::size_t>(begin / kBlock)] =
        simd::kernels().optimizer.sum_of_squares(end - begin, values + begin);
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

void set_zero(std::vector<float>& values, int threads) {
  parallel_blocks(threads, static_cast<int64_t>(values.size()), kBlock,
                  [&](int64_t begin, int64_t end) { std::fill(values.begin() + begin, values.begin() + end, 0.0f); });
}

}  // namespace deltanet
