#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "model/gradients.h"
#include "model/layout.h"
#include "model/weights.h"
#include "train/adamw.h"

namespace deltanet {

// Parts of [0, count) for each of so many processes, as even as they get: part i is [begins[i], begins[i + 1]).
std::vector<int64_t> share_begins(int64_t count, int parts);

// Euclidean norm of all gradients; not finite if one of them is not. The same bits for any number of threads.
double gradient_norm(const GradientArrays& gradients, int threads);

// AdamW over the parameters of a model. Of several processes each owns the moments of its share of them, and moves that
// share alone.
class ModelAdamW {
 public:
  ModelAdamW(const Layout& layout, const AdamWOptions& options, int process = 0, int processes = 1);

  // One step by gradients of the norm `norm`, scaled down to the norm `clip` where theirs is larger (infinite: never).
  void step(Weights& weights, const GradientArrays& gradients, double norm, double clip, double lr, int threads);

  // An array of moments: what this process owns of it, and where the shares of all begin in the whole.
  struct Moment {
    std::string_view name;
    std::vector<float>* own;
    const std::vector<int64_t>* begins;
  };
  std::array<Moment, 4> moments();

  const std::vector<int64_t>& matrices_begins() const { return matrices_begins_; }
  const std::vector<int64_t>& vectors_begins() const { return vectors_begins_; }
  void set_options(const AdamWOptions& options);  // of the steps from now on
  int64_t size() const { return matrices_.size() + vectors_.size(); }
  int64_t steps() const { return vectors_.steps(); }
  void set_steps(int64_t steps);  // when the moments are restored

 private:
  std::vector<int64_t> matrices_begins_, vectors_begins_;
  int64_t matrices_begin_, vectors_begin_;  // of this process
  AdamW matrices_, vectors_;
};

}  // namespace deltanet
