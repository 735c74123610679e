#include "model/layout.h"

#include <utility>

namespace deltanet {
namespace {

constexpr int64_t kAlignment = 16;  // floats

int64_t product(const std::vector<int64_t>& shape) {
  int64_t size = 1;
  for (int64_t extent : shape) size *= extent;
  return size;
}

}  // namespace

bool uses_input(const Spec& spec, std::string_view name) {
  return !input_shape(spec, name, Shape{.B = 1, .T = 1, .H = 1, .U = 1, .K = 1, .V = 1, .N = 1}).empty();
}

bool has_output(const Spec& spec, std::string_view name) {
  return !output_shape(spec, name, Shape{.B = 1, .T = 1, .H = 1, .U = 1, .K = 1, .V = 1, .N = 1}).empty();
}

Shape recurrence_shape(const Config& config, const RecurrenceLayout& layout, int64_t T, int64_t N) {
  return {.B = 1,
          .T = T,
          .H = layout.key_heads,
          .U = config.num_v_heads,
          .K = config.head_dim,
          .V = config.head_v_dim,
          .N = N};
}

// Adds parameters in the order of their places.
class Layout::Builder {
 public:
  explicit Builder(Layout& layout) : layout_(layout), config_(layout.config_) {}

  void build() {
    layout_.embeddings_ = matrix("model.embeddings.weight", config_.vocab_size, config_.hidden_size);
    for (int64_t i = 0; i < config_.num_hidden_layers; ++i) layout_.layers_.push_back(layer(i));
    layout_.final_norm_ = vector("model.norm.weight", {config_.hidden_size}, Init::kOne);
    layout_.head_ = config_.tie_word_embeddings ? layout_.embeddings_
                                                : matrix("lm_head.weight", config_.vocab_size, config_.hidden_size);
    layout_.matrices_size_ = matrices_;
    layout_.vectors_size_ = vectors_;
    layout_.matrix_rows_ = rows_;
  }

 private:
  static int64_t aligned(int64_t offset) { return (offset + kAlignment - 1) / kAlignment * kAlignment; }

  int64_t add(std::string name, std::vector<int64_t> shape, Init init, bool is_matrix, int64_t& end) {
    Parameter parameter{std::move(name), std::move(shape), init, is_matrix, end, rows_, 0};
    parameter.size = product(parameter.shape);
    end += parameter.size;
    if (is_matrix) rows_ += parameter.shape.front();
    layout_.parameters_.push_back(parameter);
    return parameter.offset;
  }

  MatrixAt matrix(const std::string& name, int64_t out, int64_t in) {
    matrices_ = aligned(matrices_);
    const int64_t first_row = rows_;
    return {add(name, {out, in}, Init::kNormal, true, matrices_), out, in, first_row};
  }

  int64_t vector(const std::string& name, const std::vector<int64_t>& shape, Init init) {
    vectors_ = aligned(vectors_);
    return add(name, shape, init, false, vectors_);
  }

  // Appends the rows of one more projection to a fused matrix.
  Slice project(const std::string& name, int64_t rows, MatrixAt& fused) {
    if (fused.out == 0) fused = {aligned(matrices_), 0, config_.hidden_size, rows_}, matrices_ = fused.offset;
    add(name, {rows, config_.hidden_size}, Init::kNormal, true, matrices_);
    const Slice slice{fused.out, rows};
    fused.out += rows;
    return slice;
  }

  // Decay gate g = -exp(A_log) softplus(x + dt_bias).
  void gate_vectors(const std::string& prefix, const std::string& suffix, int64_t heads, int64_t width, int64_t& a_log,
                    int64_t& dt_bias) {
    a_log = vector(prefix + "A_log" + suffix, {heads}, Init::kLogUniformA);
    dt_bias = vector(prefix + "dt_bias" + suffix, {width}, Init::kInverseSoftplusDt);
  }

  void convolutions(const std::string& prefix, RecurrenceLayout& r) {
    const std::pair<const char*, Slice> parts[] = {{"q", r.q}, {"k", r.k}, {"v", r.v}};
    vectors_ = aligned(vectors_);
    r.conv = vectors_;
    for (const auto& [name, slice] : parts) {
      add(prefix + name + "_conv1d.weight", {slice.width, 1, config_.conv_size}, Init::kNormal, false, vectors_);
    }
  }

  RecurrenceLayout recurrence(const std::string& prefix) {
    const Spec& spec = config_.spec;
    const int64_t H = config_.num_heads, U = config_.num_v_heads, K = config_.head_dim, V = config_.head_v_dim;
    // Upstream's PKDA repeats q, k and beta for each value head, so that its preconditioner is per value head, and
    // calls the projection of the preconditioner's decay a_proj.
    const bool is_pkda = config_.model_type == "precond_kda";
    const bool diagonal = spec.decay == Decay::kDiag;
    const bool low_rank_gate = config_.output_gate == OutputGate::kSigmoidLowRank;

    RecurrenceLayout r;
    r.key_heads = is_pkda ? U : H;
    r.q = project(prefix + "q_proj.weight", H * K, r.in);
    r.k = project(prefix + "k_proj.weight", H * K, r.in);
    r.v = project(prefix + "v_proj.weight", U * V, r.in);
    if (config_.output_gate == OutputGate::kSilu || config_.output_gate == OutputGate::kSigmoid) {
      r.gate = project(prefix + "g_proj.weight", U * V, r.in);
    }
    if (uses_input(spec, "beta")) r.beta = project(prefix + "b_proj.weight", is_pkda ? H : U, r.in);
    if (uses_input(spec, "beta_erase")) r.beta_erase = project(prefix + "b_erase_proj.weight", U, r.in);
    if (spec.decay == Decay::kScalar) r.decay = project(prefix + "a_proj.weight", U, r.in);
    if (uses_input(spec, "g_atk")) {
      r.atk_decay = project(prefix + (is_pkda ? "a_proj.weight" : "a_atk_proj.weight"), r.key_heads, r.in);
    }
    if (uses_input(spec, "beta_atk")) r.atk_beta = project(prefix + "b_atk_proj.weight", r.key_heads, r.in);
    if (diagonal) r.low_rank_decay = project(prefix + "f_proj.0.weight", V, r.in);
    if (low_rank_gate) r.low_rank_gate = project(prefix + "g_proj.0.weight", V, r.in);
    const bool dplr = spec.solve == Solve::kDplr;
    if (dplr && spec.tying != Tying::kBEqK) r.erase = project(prefix + "erase_proj.weight", H * K, r.in);
    r.free_write = uses_input(spec, "k_write");
    r.free_erase = uses_input(spec, "k_erase");
    r.gated_key = dplr || r.free_write || r.free_erase;
    if (r.gated_key && !(dplr && spec.tying == Tying::kAEqB)) {
      r.low_rank_eta = project(prefix + "eta_proj.0.weight", V, r.in);
    }

    if (r.low_rank_decay) r.decay_up = matrix(prefix + "f_proj.1.weight", U * K, V);
    if (r.low_rank_gate) {
      r.gate_up = matrix(prefix + "g_proj.1.weight", U * V, V);
      r.gate_bias = vector(prefix + "g_proj.1.bias", {U * V}, Init::kZero);
    }
    if (r.low_rank_eta) r.eta_up = matrix(prefix + "eta_proj.1.weight", H * K, V);
    r.out = matrix(prefix + "o_proj.weight", config_.hidden_size, U * V);

    if (config_.conv_size > 0) convolutions(prefix, r);
    if (r.decay) gate_vectors(prefix, "", U, U, r.a_log, r.dt_bias);
    if (r.low_rank_decay) gate_vectors(prefix, "", U, U * K, r.a_log, r.dt_bias);
    if (r.atk_decay) gate_vectors(prefix, "_atk", r.key_heads, r.key_heads, r.a_log_atk, r.dt_bias_atk);
    if (uses_input(spec, "log_atk_scale")) {
      r.log_atk_scale = vector(prefix + "log_atk_scale", {r.key_heads}, Init::kAtkScale);
    }
    if (uses_input(spec, "d")) r.d = vector(prefix + "d", {H}, Init::kOne);
    if (uses_input(spec, "ridge")) {
      const Shape sizes{.B = 1, .T = 1, .H = H, .U = U, .K = K, .V = V, .N = 1};
      r.lambda_shape = input_shape(spec, "ridge", sizes);  // [H,K], or [H] where it only makes P0
      r.lambda = vector(prefix + "lambda", r.lambda_shape, Init::kLambda);
    }
    r.o_norm = vector(prefix + "o_norm.weight", {V}, Init::kOne);
    return r;
  }

  AttentionLayout attention(const std::string& prefix, const AttentionConfig& config) {
    AttentionLayout a;
    a.heads = config.num_heads;
    a.kv_heads = config.num_kv_heads;
    a.head_dim = config_.hidden_size / config.num_heads;
    const int64_t q_width = a.heads * a.head_dim, kv_width = a.kv_heads * a.head_dim;
    a.q = project(prefix + "q_proj.weight", q_width, a.in);
    a.k = project(prefix + "k_proj.weight", kv_width, a.in);
    a.v = project(prefix + "v_proj.weight", kv_width, a.in);
    a.out = matrix(prefix + "o_proj.weight", config_.hidden_size, q_width);
    if (config.qkv_bias) {
      vectors_ = aligned(vectors_);
      a.bias = add(prefix + "q_proj.bias", {q_width}, Init::kZero, false, vectors_);
      add(prefix + "k_proj.bias", {kv_width}, Init::kZero, false, vectors_);
      add(prefix + "v_proj.bias", {kv_width}, Init::kZero, false, vectors_);
    }
    if (config.qk_norm) {
      a.q_norm = vector(prefix + "q_norm.weight", {a.head_dim}, Init::kOne);
      a.k_norm = vector(prefix + "k_norm.weight", {a.head_dim}, Init::kOne);
    }
    return a;
  }

  LayerLayout layer(int64_t index) {
    const std::string prefix = "model.layers." + std::to_string(index) + ".";
    LayerLayout layer;
    layer.matrices_begin = matrices_ = aligned(matrices_);
    layer.vectors_begin = vectors_ = aligned(vectors_);
    layer.attention_config = config_.attention_of(index);
    layer.attn_norm = vector(prefix + "attn_norm.weight", {config_.hidden_size}, Init::kOne);
    if (layer.attention_config) {
      layer.attention = attention(prefix + "attn.", *layer.attention_config);
    } else {
      layer.recurrence = recurrence(prefix + "attn.");
    }
    layer.mlp_norm = vector(prefix + "mlp_norm.weight", {config_.hidden_size}, Init::kOne);
    project(prefix + "mlp.gate_proj.weight", config_.intermediate_size, layer.gate_up);
    project(prefix + "mlp.up_proj.weight", config_.intermediate_size, layer.gate_up);
    layer.down = matrix(prefix + "mlp.down_proj.weight", config_.hidden_size, config_.intermediate_size);
    layer.matrices_end = matrices_ = aligned(matrices_);
    layer.vectors_end = vectors_ = aligned(vectors_);
    return layer;
  }

  Layout& layout_;
  const Config& config_;
  int64_t matrices_ = 0, vectors_ = 0, rows_ = 0;
};

Layout::Layout(const Config& config) : config_(config) { Builder(*this).build(); }

int64_t Layout::parameter_count() const {
  int64_t count = 0;
  for (const Parameter& parameter : parameters_) count += parameter.size;
  return count;
}

}  // namespace deltanet
