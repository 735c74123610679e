#include "model/weights.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <iterator>
#include <numbers>
#include <set>
#include <utility>

#include "base/hash.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "deltanet/error.h"
#include "model/checkpoint/checkpoint.h"
#include "nn/quantize.h"

namespace deltanet {
namespace {

using nn::WeightType;

// A part of a parameter that is big enough to be worth handing to a thread: whole rows.
struct Piece {
  const Parameter* parameter;
  int64_t first_row, rows, cols;

  int64_t begin() const { return first_row * cols; }  // in the values of the parameter
  int64_t count() const { return rows * cols; }
};

std::vector<Piece> cut(const Parameter& parameter) {
  constexpr int64_t kElements = int64_t{1} << 20;
  const int64_t rows = parameter.shape.front(), cols = parameter.size / rows;
  const int64_t step = std::max<int64_t>(1, kElements / cols);
  std::vector<Piece> pieces;
  for (int64_t row = 0; row < rows; row += step) pieces.push_back({&parameter, row, std::min(step, rows - row), cols});
  return pieces;
}

std::vector<Piece> cut(const Layout& layout) {
  std::vector<Piece> pieces;
  for (const Parameter& parameter : layout.parameters()) {
    for (const Piece& piece : cut(parameter)) pieces.push_back(piece);
  }
  return pieces;
}

uint64_t hash_first_row(const Parameter& matrix, const float* values) {
  return hash_bytes(values, static_cast<std::size_t>(matrix.shape.back()) * sizeof(float));
}

template <class T>
std::string text_of(T value) {
  char text[32];
  return {text, std::to_chars(text, std::end(text), value).ptr};  // tells any two values apart
}

// The fields of a config that decide results and that names and shapes of parameters need not tell apart.
std::string what_it_computes(const Config& config) {
  std::string text = config.row;
  const auto add = [&](std::string_view name, const std::string& value) {
    text.append(";").append(name).append("=").append(value);
  };
  if (!config.row.empty()) {
    for (const auto& [key, value] : options(config.spec)) add(key, value);
    add("heads", text_of(config.num_heads));
    add("v_heads", text_of(config.num_v_heads));
    add("gate", text_of(static_cast<int>(config.output_gate)));
    add("allow_neg_eigval", text_of(static_cast<int>(config.allow_neg_eigval)));
  }
  add("norm_eps", text_of(config.norm_eps));
  for (const AttentionConfig& attention : config.attention) {
    for (const int64_t layer : attention.layers) add("attention", text_of(layer));
    add("heads", text_of(attention.num_heads));
    add("kv_heads", text_of(attention.num_kv_heads));
    add("window", text_of(attention.window));
    add("rope_theta", text_of(attention.rope_theta));
  }
  return text;
}

double inverse_softplus(double y) { return y + std::log(-std::expm1(-y)); }

float initial_value(Init init, const Config& config, Rng& rng) {
  switch (init) {
    case Init::kNormal:
      return static_cast<float>(config.initializer_range * rng.normal());
    case Init::kOne:
      return 1.0f;
    case Init::kZero:
      return 0.0f;
    case Init::kLogUniformA: {
      // Away from zero, where the logarithm has no value.
      const double A = config.a_init_lower + (16.0 - config.a_init_lower) * rng.uniform();
      return static_cast<float>(std::log(std::max(A, 1e-6)));
    }
    case Init::kInverseSoftplusDt: {
      const double dt = std::exp(std::log(1e-3) + rng.uniform() * (std::log(0.1) - std::log(1e-3)));
      return static_cast<float>(inverse_softplus(std::max(dt, 1e-4)));
    }
    case Init::kAtkScale:
      return static_cast<float>(config.log_atk_scale_init);
    case Init::kLambda:
      return static_cast<float>(inverse_softplus(0.75));  // a ridge of 1 over the smallest
  }
  return 0.0f;
}

}  // namespace

Weights::Weights(std::shared_ptr<const Layout> layout, WeightType type, bool keep_masters)
    : layout_(std::move(layout)), type_(type) {
  const int64_t matrices = layout_->matrices_size();
  vectors_ = arena_.take_zeros(layout_->vectors_size());
  if (type == WeightType::kFloat32 || keep_masters) masters_ = arena_.take(matrices);
  if (!masters_) first_rows_.resize(layout_->parameters().size());
  // Two and four values to a float.
  if (type == WeightType::kBfloat16) bf16_ = reinterpret_cast<uint16_t*>(arena_.take((matrices + 1) / 2));
  if (type == WeightType::kInt8) {
    int8_ = reinterpret_cast<int8_t*>(arena_.take((matrices + 3) / 4));
    scales_ = arena_.take(layout_->matrix_rows());
  }
}

nn::Weight Weights::matrix(const MatrixAt& at) const {
  switch (type_) {
    case WeightType::kFloat32:
      return {type_, masters_ + at.offset, nullptr, at.out, at.in};
    case WeightType::kBfloat16:
      return {type_, bf16_ + at.offset, nullptr, at.out, at.in};
    case WeightType::kInt8:
      return {type_, int8_ + at.offset, scales_ + at.first_row, at.out, at.in};
  }
  return {};
}

// Rounds rows of a matrix to the type that products read.
void Weights::round_rows(int64_t offset, int64_t first_row, int64_t rows, int64_t cols, const float* values,
                         int threads) {
  if (bf16_) nn::to_bfloat16(values, rows, cols, bf16_ + offset, threads);
  if (int8_) nn::to_int8(values, rows, cols, int8_ + offset, scales_ + first_row, threads);
}

void Weights::set_values(const Parameter& parameter, const float* values, int threads) {
  if (!parameter.is_matrix) {
    std::copy_n(values, parameter.size, vectors_ + parameter.offset);
    return;
  }
  if (masters_) std::copy_n(values, parameter.size, masters_ + parameter.offset);
  const int64_t rows = parameter.shape.front();
  round_rows(parameter.offset, parameter.first_row, rows, parameter.size / rows, values, threads);
  remember_first_row(parameter, values);
}

void Weights::remember_first_row(const Parameter& parameter, const float* values) {
  if (first_rows_.empty()) return;
  first_rows_[static_cast<std::size_t>(&parameter - layout_->parameters().data())] = hash_first_row(parameter, values);
}

void Weights::copy_values(const Parameter& parameter, float* values, int threads) const {
  if (!parameter.is_matrix) {
    std::copy_n(vectors_ + parameter.offset, parameter.size, values);
  } else if (masters_) {
    std::copy_n(masters_ + parameter.offset, parameter.size, values);
  } else {
    const int64_t rows = parameter.shape.front();
    const MatrixAt at{parameter.offset, rows, parameter.size / rows, parameter.first_row};
    nn::to_float32(matrix(at), values, threads);
  }
}

void Weights::keep_masters(int threads) {
  if (masters_) return;
  float* masters = arena_.take(layout_->matrices_size());
  for (const Parameter& parameter : layout_->parameters()) {
    if (parameter.is_matrix) copy_values(parameter, masters + parameter.offset, threads);
  }
  masters_ = masters;
}

void Weights::refresh(int threads) {
  if (!masters_) return;
  first_rows_.clear();  // the masters are the model now, and no longer what was rounded before they were made
  if (bf16_) nn::to_bfloat16(masters_, 1, layout_->matrices_size(), bf16_, threads);  // all at once: many are small
  if (!int8_) return;
  for (const Parameter& parameter : layout_->parameters()) {
    if (!parameter.is_matrix) continue;
    const int64_t rows = parameter.shape.front();
    round_rows(parameter.offset, parameter.first_row, rows, parameter.size / rows, masters_ + parameter.offset,
               threads);
  }
}

void Weights::initialize(uint64_t seed, int threads) {
  // Every piece has a generator of its own, so that threads do not matter.
  const std::vector<Piece> pieces = cut(*layout_);
  parallel_for(threads, static_cast<int64_t>(pieces.size()), [&](int64_t i) {
    const Piece& piece = pieces[i];
    Rng rng(seed, static_cast<uint64_t>(i));
    std::vector<float> values(piece.count());
    for (float& value : values) value = initial_value(piece.parameter->init, layout_->config(), rng);
    store(piece.parameter, piece.first_row, piece.rows, piece.cols, values.data());
  });
}

// Values of some rows of a parameter, on the calling thread.
void Weights::store(const Parameter* parameter, int64_t first_row, int64_t rows, int64_t cols, const float* values) {
  const int64_t offset = parameter->offset + first_row * cols;
  if (!parameter->is_matrix) {
    std::copy_n(values, rows * cols, vectors_ + offset);
    return;
  }
  if (masters_ && values != masters_ + offset) std::copy_n(values, rows * cols, masters_ + offset);
  round_rows(offset, parameter->first_row + first_row, rows, cols, values, 1);
  if (first_row == 0) remember_first_row(*parameter, values);
}

void check_tensors(const Layout& layout, const CheckpointReader& reader) {
  const auto fail = [&](const std::string& name, const std::string& what) {
    throw Error("[checkpoint] " + reader.directory().string() + ": " + name + ": " + what);
  };
  std::set<std::string_view> known = {"lm_head.weight"};  // some tools store it even where it is tied
  for (const Parameter& parameter : layout.parameters()) {
    known.insert(parameter.name);
    const StoredTensor* tensor = reader.find(parameter.name);
    if (!tensor) fail(parameter.name, "missing; config.json asks for " + shape_text(parameter.shape));
    if (tensor->shape != parameter.shape) {
      fail(parameter.name,
           "has shape " + shape_text(tensor->shape) + "; config.json asks for " + shape_text(parameter.shape));
    }
    if (!is_floating(tensor->dtype)) {
      fail(parameter.name, "has dtype " + std::string(dtype_name(tensor->dtype)) + "; expected F32, BF16, F16 or F64");
    }
  }
  for (const std::string& name : reader.names()) {
    if (!known.contains(name)) fail(name, "not a parameter of the model that config.json describes");
  }
}

void Weights::load(const CheckpointReader& reader, int threads) {
  check_tensors(*layout_, reader);
  std::vector<const StoredTensor*> tensors;
  for (const Parameter& parameter : layout_->parameters()) tensors.push_back(reader.find(parameter.name));
  const std::vector<Piece> pieces = cut(*layout_);
  const Parameter* first = layout_->parameters().data();
  parallel_for(threads, static_cast<int64_t>(pieces.size()), [&](int64_t i) {
    const Piece& piece = pieces[i];
    const StoredTensor& tensor = *tensors[piece.parameter - first];
    if (piece.parameter->is_matrix && masters_) {
      float* to = masters_ + piece.parameter->offset + piece.begin();
      read_floats(tensor, piece.begin(), piece.count(), to);
      store(piece.parameter, piece.first_row, piece.rows, piece.cols, to);
    } else {
      thread_local std::vector<float> values;
      values.resize(piece.count());
      read_floats(tensor, piece.begin(), piece.count(), values.data());
      store(piece.parameter, piece.first_row, piece.rows, piece.cols, values.data());
    }
  });
}

int64_t Weights::bytes() const { return arena_.capacity() * static_cast<int64_t>(sizeof(float)); }

int64_t Weights::product_bytes() const {
  const int64_t values = layout_->matrices_size();
  switch (type_) {
    case WeightType::kFloat32:
      return 4 * values;
    case WeightType::kBfloat16:
      return 2 * values;
    case WeightType::kInt8:
      return values + 4 * layout_->matrix_rows();
  }
  return 0;
}

uint64_t Weights::fingerprint() const {
  // What the config says, names, shapes, the vectors, which stay float32 in every type, and the first rows of the
  // matrices before they are rounded: bf16 and int8 versions of one checkpoint are the same model.
  const std::string computes = what_it_computes(layout_->config());
  uint64_t hash = hash_bytes(computes.data(), computes.size());
  const std::vector<Parameter>& parameters = layout_->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    hash = hash_bytes(parameter.name.data(), parameter.name.size(), hash);
    hash = hash_bytes(parameter.shape.data(), parameter.shape.size() * sizeof(int64_t), hash);
    if (!parameter.is_matrix) continue;
    const uint64_t row = first_rows_.empty() ? hash_first_row(parameter, masters_ + parameter.offset) : first_rows_[i];
    hash = hash_bytes(&row, sizeof row, hash);
  }
  return hash_bytes(vectors_, static_cast<std::size_t>(layout_->vectors_size()) * sizeof(float), hash);
}

}  // namespace deltanet
