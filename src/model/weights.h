#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/arena.h"
#include "model/layout.h"
#include "nn/matmul/weight.h"

namespace deltanet {

class CheckpointReader;

// The values of all parameters, in the places that a Layout gives them. The matrices are float32, bf16 or int8; with
// bf16 they may exist twice, as float32 masters and as the copies that products read.
class Weights {
 public:
  // Unset values. keep_masters: hold float32 matrices even if products read another type (training).
  Weights(std::shared_ptr<const Layout> layout, nn::WeightType type, bool keep_masters);

  const Layout& layout() const { return *layout_; }
  const std::shared_ptr<const Layout>& shared_layout() const { return layout_; }
  nn::WeightType type() const { return type_; }

  nn::Weight matrix(const MatrixAt& at) const;
  // Two arrays of float32: masters of the matrices (null if there are none) and vectors.
  float* matrices() const { return masters_; }
  float* vectors() const { return vectors_; }
  const float* vector(int64_t offset) const { return offset == kAbsent ? nullptr : vectors_ + offset; }

  // The values of one parameter as float32, also where it is stored in another type.
  void copy_values(const Parameter& parameter, float* values, int threads) const;
  // Stores float32 values, rounded to the type of the matrices.
  void set_values(const Parameter& parameter, const float* values, int threads);
  // From now on also holds float32 matrices, for an optimizer to move; they begin as the values that products read.
  void keep_masters(int threads);
  // After the masters have changed: renews the copies that products read.
  void refresh(int threads);

  // Random values of the paper's recipe; the same for any number of threads.
  void initialize(uint64_t seed, int threads);
  // All values from a checkpoint that check_tensors() accepts.
  void load(const CheckpointReader& reader, int threads);

  int64_t bytes() const;          // of everything held here
  int64_t product_bytes() const;  // that products read: what a decode step moves
  uint64_t fingerprint() const;   // tells models apart, whatever the type of their matrices

 private:
  void store(const Parameter* parameter, int64_t first_row, int64_t rows, int64_t cols, const float* values);
  void remember_first_row(const Parameter& parameter, const float* values);
  void round_rows(int64_t offset, int64_t first_row, int64_t rows, int64_t cols, const float* values, int threads);

  std::shared_ptr<const Layout> layout_;
  nn::WeightType type_;
  Arena arena_;
  float* masters_ = nullptr;  // [matrices_size]
  float* vectors_ = nullptr;  // [vectors_size]
  uint16_t* bf16_ = nullptr;  // [matrices_size]
  int8_t* int8_ = nullptr;    // [matrices_size]
  float* scales_ = nullptr;   // [matrix_rows], int8
  // Of matrices that were rounded as they came: a hash of their first row before that, for the fingerprint.
  // [parameters]; empty: the masters have them.
  std::vector<uint64_t> first_rows_;
};

// Throws Error naming a tensor that a model of this layout misses or does not have, or that has another shape or no
// floats. Before any memory is taken: sizes of a config.json that the checkpoint does not bear out cost nothing.
void check_tensors(const Layout& layout, const CheckpointReader& reader);

}  // namespace deltanet
