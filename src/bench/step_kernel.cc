// The kernel of the decode step against the loop that one writes first.

#include <algorithm>
#include <functional>

#include "base/arena.h"
#include "bench/measure.h"
#include "bench/step_kernel.h"
#include "bench/work.h"
#include "recurrence/arrays.h"
#include "simd/kernels.h"

namespace deltanet::bench {
namespace {

constexpr float kAlpha = 0.97f, kBeta = 0.6f;
constexpr int kCalls = 100;  // steps in one sample

// The same step for all heads, each with a state of its own.
class Heads {
 public:
  Heads(const Shape& shape, bool decayed_reads) : heads_(shape.B * shape.U), K_(shape.K), V_(shape.V) {
    const Arrays drawn = random_inputs(find_row("gdn").spec, {1, 1, 1, heads_, K_, V_, 1}, 3);
    S_ = copy(drawn.at("S0"), 1.0f);
    w_ = copy(drawn.at("k"), 1.0f);
    v_ = copy(drawn.at("v"), kBeta);
    // The fused kernel never forms the decayed state on its own: it takes its reads already decayed.
    e_ = copy(drawn.at("k"), kBeta * (decayed_reads ? kAlpha : 1.0f));
    q_ = copy(drawn.at("q"), decayed_reads ? kAlpha : 1.0f);
    o_ = arena_.take_zeros(heads_ * V_);
    for (int64_t i = 0; i < K_; ++i) w_dot_q_ += w_[i] * static_cast<float>(drawn.at("q").data[static_cast<size_t>(i)]);
  }

  void run(void (*step)(const simd::Step&)) {
    for (int64_t head = 0; head < heads_; ++head) {
      simd::Step p{};
      p.k_rows = K_;
      p.n = V_;
      p.S = S_ + head * K_ * V_;
      p.lds = V_;
      p.alpha_scalar = kAlpha;
      p.e = e_;
      p.q = q_;
      p.w = w_;
      p.w_dot_q = w_dot_q_;
      p.v = v_ + head * V_;
      p.o = o_ + head * V_;
      step(p);
    }
  }

  Arrays results() const {
    return {{"S", {{heads_ * K_ * V_}, {S_, S_ + heads_ * K_ * V_}}}, {"o", {{heads_ * V_}, {o_, o_ + heads_ * V_}}}};
  }

 private:
  float* copy(const Array& array, float factor) {
    float* data = arena_.take(static_cast<int64_t>(array.data.size()));
    std::transform(array.data.begin(), array.data.end(), data,
                   [&](double x) { return static_cast<float>(x) * factor; });
    return data;
  }

  const int64_t heads_, K_, V_;
  Arena arena_;
  float *S_, *w_, *v_, *e_, *q_, *o_;
  float w_dot_q_ = 0.0f;
};

}  // namespace

StepKernelResult measure_step_kernel(const Shape& shape, int rounds) {
  const simd::Kernels& simd = simd::kernels();
  Heads fused(shape, /*decayed_reads=*/true), plain(shape, /*decayed_reads=*/false);
  fused.run(simd.step);
  plain.run(simd.plain_step);
  StepKernelResult result;
  result.error = relative_error(fused.results(), plain.results());
  if (!result.correct()) return result;

  const std::vector<std::function<void()>> candidates = {[&] {
                                                           for (int call = 0; call < kCalls; ++call)
                                                             fused.run(simd.step);
                                                         },
                                                         [&] {
                                                           for (int call = 0; call < kCalls; ++call)
                                                             plain.run(simd.plain_step);
                                                         }};
  const auto seconds = interleave(candidates, rounds);
  result.ratio = ratios(seconds[1], seconds[0]);
  for (double x : seconds[0]) result.step.push_back(x / kCalls);
  for (double x : seconds[1]) result.plain.push_back(x / kCalls);
  return result;
}

}  // namespace deltanet::bench
