#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace deltanet::nn {

// Rotary position embedding, x [T, heads, D]: for i < D/2, the pair (x_i, x_{D/2+i}) of the token at position p is
// rotated by the angle p theta^{-2i/D}. Llama's and flash-linear-attention's pairing of the two halves.
class Rope {
 public:
  Rope(int64_t head_dim, double theta);

  // In place on rows of heads * head_dim floats, ldx apart. Sequence n is the tokens [offsets[n], offsets[n+1]); its
  // first token stands at starts[n], or at 0 if starts is empty. Not to be called by two threads at once: tables grow.
  void forward(std::span<const int64_t> offsets, std::span<const int64_t> starts, int64_t heads, float* x, int64_t ldx,
               int threads);
  // dx from dy, in place: the inverse rotation.
  void backward(std::span<const int64_t> offsets, std::span<const int64_t> starts, int64_t heads, float* dx,
                int64_t lddx, int threads);

  int64_t planned() const { return planned_; }  // positions that the tables cover; a bounded number

 private:
  void plan(int64_t length);
  // Cosines and sines of positions [first, first + count), [count, half] each.
  void fill(int64_t first, int64_t count, float* cosine, float* sine) const;
  void rotate(std::span<const int64_t> offsets, std::span<const int64_t> starts, int64_t heads, float* x, int64_t ldx,
              bool inverse, int threads);

  int64_t half_;
  double theta_;
  int64_t planned_ = 0;
  std::vector<float> cosine_, sine_;  // [planned, half]
};

}  // namespace deltanet::nn
