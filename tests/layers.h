#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "nn/views.h"

// How every layer is tested: results against float64 code written in the test, gradients against finite differences of
// that code, on every SIMD target, with scratch and the gaps between rows full of NaN, and on several threads.

namespace deltanet::test {

using Values = std::vector<double>;

Values random_values(int64_t count, uint32_t seed, double scale = 1.0);  // normal, exactly representable as float
std::vector<float> floats(const Values& values);
Values doubles(const std::vector<float>& values);

// A matrix inside a wider one, at an odd address.
class Slice {
 public:
  Slice(int64_t rows, int64_t n, const Values& values = {});  // no values: NaN
  Slice(int64_t rows, int64_t n, double fill) : Slice(rows, n, Values(static_cast<size_t>(rows * n), fill)) {}

  nn::View rows() { return {buffer_.data() + kBefore, ld_}; }
  Values values() const;  // fails the test if something was written between the rows

 private:
  static constexpr int64_t kBefore = 1, kBetween = 5;
  int64_t count_, n_, ld_;
  std::vector<float> buffer_;
};

Values minus(Values values, double amount);  // what was added to an array that held `amount`
Values joined(Values first, const Values& second);

struct LayerResult {
  Values y;                       // all results, one after the other
  std::vector<Values> gradients;  // of each input; an empty one is not checked
};

struct Layer {
  std::vector<Values> inputs;
  std::function<Values(const std::vector<Values>& inputs)> reference;
  std::function<LayerResult(const std::vector<Values>& inputs, const Values& dy, int threads)> run;
};

// Results within `tolerance` of each value, gradients within `tolerance` of the largest one.
void check_layer(const Layer& layer, double tolerance = 3e-6);
// Shapes of several blocks, too large for all finite differences: the same bits on one, two and three threads, and the
// derivative in one direction.
void check_blocks(const Layer& layer);

void expect_close(const Values& got, const Values& want, double relative, double absolute, const std::string& what);
void for_every_target(const std::function<void()>& body);

}  // namespace deltanet::test
