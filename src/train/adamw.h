#pragma once

#include <cstdint>
#include <vector>

#include "deltanet/optimizer.h"

namespace deltanet {

// AdamW over flat arrays of parameters. It may own the moments of a part of them only (a shard); the caller says which
// by the pointers it passes.
class AdamW {
 public:
  AdamW(int64_t count, const AdamWOptions& options);

  // One step on parameters [count] with gradients [count], each multiplied by grad_scale first (clipping).
  void step(float* parameters, const float* gradients, float grad_scale, double lr, int threads);

  void set_options(const AdamWOptions& options) { options_ = options; }  // of the steps from now on
  int64_t size() const { return static_cast<int64_t>(m_.size()); }
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }  // when the moments are restored
  std::vector<float>& m() { return m_; }
  std::vector<float>& v() { return v_; }

 private:
  AdamWOptions options_;
  int64_t steps_ = 0;
  std::vector<float> m_, v_;
};

// Square of the Euclidean norm; not finite if any value is not. The same bits for any number of threads.
double squared_norm(const float* values, int64_t count, int threads);
void set_zero(std::vector<float>& values, int threads);

}  // namespace deltanet
