#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deltanet/recurrence.h"
#include "model/config/config.h"

namespace deltanet {

// How a parameter starts.
enum class Init {
  kNormal,             // N(0, initializer_range)
  kOne,                // norm weights
  kZero,               // biases
  kLogUniformA,        // log of U(a_init_lower, 16)
  kInverseSoftplusDt,  // inverse softplus of dt, log-uniform in [1e-3, 0.1]
  kAtkScale,           // log_atk_scale_init
  kLambda,             // the ridge starts at 1
};

// Where a parameter lives. Matrices and vectors are two flat arrays: products may run on bf16 or int8 copies of the
// matrices, while the vectors (norms, convolutions, gates) always stay float32.
struct Parameter {
  std::string name;
  std::vector<int64_t> shape;
  Init init = Init::kNormal;
  bool is_matrix = false;
  int64_t offset = 0;     // in the array of matrices or of vectors
  int64_t first_row = 0;  // of a matrix, counted over all matrices
  int64_t size = 0;
};

// Columns of the matrix that a fused projection writes; width 0: the layer has no such part.
struct Slice {
  int64_t column = 0, width = 0;
  explicit operator bool() const { return width > 0; }
};

// A matrix [out, in] in the array of matrices.
struct MatrixAt {
  int64_t offset = 0, out = 0, in = 0;
  int64_t first_row = 0;  // counted over all matrices: where the scales of int8 rows are
  explicit operator bool() const { return out > 0; }
};

inline constexpr int64_t kAbsent = -1;  // offset of a vector that a layer does not have

// The mixer of a recurrence. All projections of the layer's input are rows of one matrix, so that one product computes
// them; q, k and v come first, so that one convolution runs over the three.
struct RecurrenceLayout {
  MatrixAt in, out;
  Slice q, k, v, gate, beta, beta_erase, decay, atk_decay, atk_beta, low_rank_decay, low_rank_gate, erase, low_rank_eta;
  MatrixAt decay_up, gate_up, eta_up;  // second matrices of the low-rank projections
  // A further key: normalized, and perhaps gated by eta (DPLR, free keys).
  bool gated_key = false, free_write = false, free_erase = false;
  int64_t gate_bias = kAbsent;
  int64_t conv = kAbsent;  // [2HK + UV, W]: q, k, v one after the other
  int64_t a_log = kAbsent, dt_bias = kAbsent, a_log_atk = kAbsent, dt_bias_atk = kAbsent, log_atk_scale = kAbsent;
  int64_t d = kAbsent, lambda = kAbsent, o_norm = kAbsent;
  std::vector<int64_t> lambda_shape;
  int64_t key_heads = 0;  // of the recurrence: value heads where upstream repeats q and k (PKDA)
};

struct AttentionLayout {
  MatrixAt in, out;  // in: q, k, v
  Slice q, k, v;
  int64_t bias = kAbsent, q_norm = kAbsent, k_norm = kAbsent;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
};

struct LayerLayout {
  const AttentionConfig* attention_config = nullptr;  // null: the recurrence
  RecurrenceLayout recurrence;
  AttentionLayout attention;
  int64_t attn_norm = 0, mlp_norm = 0;  // vectors
  MatrixAt gate_up, down;               // of the MLP
  // What belongs to this layer in the two arrays, [begin, end).
  int64_t matrices_begin = 0, matrices_end = 0, vectors_begin = 0, vectors_end = 0;
};

// Names, shapes and places of all parameters of a model.
class Layout {
 public:
  explicit Layout(const Config& config);  // keeps a copy
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

  const Config& config() const { return config_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<LayerLayout>& layers() const { return layers_; }
  MatrixAt embeddings() const { return embeddings_; }
  MatrixAt head() const { return head_; }  // the embeddings where they are tied
  int64_t final_norm() const { return final_norm_; }

  int64_t matrices_size() const { return matrices_size_; }  // floats, with a little padding for alignment
  int64_t vectors_size() const { return vectors_size_; }
  int64_t matrix_rows() const { return matrix_rows_; }  // of all matrices
  int64_t parameter_count() const;

 private:
  class Builder;

  Config config_;
  std::vector<Parameter> parameters_;
  std::vector<LayerLayout> layers_;
  MatrixAt embeddings_, head_;
  int64_t final_norm_ = 0;
  int64_t matrices_size_ = 0, vectors_size_ = 0, matrix_rows_ = 0;
};

// Sizes of the recurrence of this model for N packed sequences of T tokens in all.
Shape recurrence_shape(const Config& config, const RecurrenceLayout& layout, int64_t T, int64_t N);

// Whether the recurrence takes this input or has this output.
bool uses_input(const Spec& spec, std::string_view name);
bool has_output(const Spec& spec, std::string_view name);

}  // namespace deltanet
