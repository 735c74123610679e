// The logits of every kind of model against float64 code that is written from docs/models.md: every constant of it
// (RetNet's decays, the least ridge, the epsilons, the factor of negative eigenvalues) is written down here once more.
// Of the library it takes only the parameters and the float64 definition of the recurrence.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <random>
#include <string>

#include "base/arena.h"
#include "deltanet/model.h"
#include "deltanet/reference.h"
#include "model/config/config.h"
#include "model_fixture.h"

namespace deltanet::test {
namespace {

using Vector = std::vector<double>;
using Matrix = std::vector<Vector>;  // one row for each token

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }
double softplus(double x) { return std::log1p(std::exp(x)); }

class ReferenceModel {
 public:
  explicit ReferenceModel(const Model& model) : model_(model), config_(parse_config(model.config_json(), "model")) {}

  std::vector<double> logits(const std::vector<int32_t>& ids) const {
    const std::vector<float> embeddings = model_.parameter("model.embeddings.weight");
    Matrix h;
    for (const int32_t id : ids) {
      const float* row = embeddings.data() + id * config_.hidden_size;
      h.emplace_back(row, row + config_.hidden_size);
    }
    for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      const AttentionConfig* attention = config_.attention_of(i);
      const Matrix x = norm(h, layer + "attn_norm.weight");
      add(h, attention ? softmax_attention(*attention, layer + "attn.", x) : recurrence(layer + "attn.", x));
      const Matrix y = norm(h, layer + "mlp_norm.weight");
      Matrix gate = product(layer + "mlp.gate_proj.weight", y);
      const Matrix up = product(layer + "mlp.up_proj.weight", y);
      for (std::size_t t = 0; t < gate.size(); ++t) {
        for (std::size_t j = 0; j < gate[t].size(); ++j) gate[t][j] = silu(gate[t][j]) * up[t][j];
      }
      add(h, product(layer + "mlp.down_proj.weight", gate));
    }
    const Matrix last = norm(h, "model.norm.weight");
    const Matrix result = product(has("lm_head.weight") ? "lm_head.weight" : "model.embeddings.weight", last);
    std::vector<double> flat;
    for (const Vector& row : result) flat.insert(flat.end(), row.begin(), row.end());
    return flat;
  }

 private:
  bool has(const std::string& name) const {
    const auto all = model_.parameters();
    return std::any_of(all.begin(), all.end(), [&](const ParameterInfo& info) { return info.name == name; });
  }

  static void add(Matrix& to, const Matrix& x) {
    for (std::size_t t = 0; t < to.size(); ++t) {
      for (std::size_t j = 0; j < to[t].size(); ++j) to[t][j] += x[t][j];
    }
  }

  // x W^T + bias
  Matrix product(const std::string& name, const Matrix& x, const std::string& bias_name = "") const {
    const std::vector<float> w = model_.parameter(name);
    const std::size_t in = x.front().size(), out = w.size() / in;
    const std::vector<float> bias = bias_name.empty() ? std::vector<float>(out) : model_.parameter(bias_name);
    Matrix y;
    for (const Vector& row : x) {
      Vector& made = y.emplace_back(bias.begin(), bias.end());
      for (std::size_t o = 0; o < out; ++o) {
        for (std::size_t i = 0; i < in; ++i) made[o] += static_cast<double>(w[o * in + i]) * row[i];
      }
    }
    return y;
  }

  // The RMS norm of the runs of `width` values of a row that share their weights.
  Matrix norm(const Matrix& x, const std::string& name) const {
    const std::vector<float> w = model_.parameter(name);
    Matrix y = x;
    for (Vector& row : y) {
      for (std::size_t begin = 0; begin < row.size(); begin += w.size()) {
        double squares = 0;
        for (std::size_t i = 0; i < w.size(); ++i) squares += row[begin + i] * row[begin + i];
        const double rms = std::sqrt(squares / static_cast<double>(w.size()) + config_.norm_eps);
        for (std::size_t i = 0; i < w.size(); ++i) row[begin + i] *= w[i] / rms;
      }
    }
    return y;
  }

  // silu(conv(x)): every channel sees itself and the tokens before it.
  Matrix convolved(const Matrix& x, const std::string& name) const {
    const std::vector<float> taps = has(name) ? model_.parameter(name) : std::vector<float>(x.front().size(), 1.0f);
    const auto width = static_cast<int64_t>(taps.size() / x.front().size());
    Matrix y = x;
    for (int64_t t = 0; t < static_cast<int64_t>(x.size()); ++t) {
      for (std::size_t c = 0; c < x.front().size(); ++c) {
        double sum = 0;
        for (int64_t back = 0; back < std::min(width, t + 1); ++back) {
          sum += static_cast<double>(taps[c * width + width - 1 - back]) * x[t - back][c];
        }
        y[t][c] = silu(sum);
      }
    }
    return y;
  }

  static Matrix each(Matrix x, const std::function<double(double)>& f) {
    for (Vector& row : x) std::transform(row.begin(), row.end(), row.begin(), f);
    return x;
  }

  // -exp(A_log) softplus(x + dt_bias), with one A for each head
  Matrix decay(Matrix x, const std::string& prefix, const std::string& suffix) const {
    const std::vector<float> a_log = model_.parameter(prefix + "A_log" + suffix),
                             bias = model_.parameter(prefix + "dt_bias" + suffix);
    const std::size_t per_head = bias.size() / a_log.size();
    for (Vector& row : x) {
      for (std::size_t i = 0; i < row.size(); ++i) {
        row[i] = -std::exp(static_cast<double>(a_log[i / per_head])) * softplus(row[i] + bias[i]);
      }
    }
    return x;
  }

  // Every head once for each head of its group.
  static Matrix repeated(const Matrix& x, int64_t heads, int64_t group) {
    const auto width = static_cast<int64_t>(x.front().size()) / heads;
    Matrix y(x.size());
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (int64_t h = 0; h < heads * group; ++h) {
        const auto from = x[t].begin() + h / group * width;
        y[t].insert(y[t].end(), from, from + width);
      }
    }
    return y;
  }

  Matrix recurrence(const std::string& at, const Matrix& x) const {
    const auto T = static_cast<int64_t>(x.size());
    const int64_t U = config_.num_v_heads, K = config_.head_dim, V = config_.head_v_dim;
    const bool repeats = config_.model_type == "precond_kda";  // one preconditioner for each value head
    const int64_t group = repeats ? U / config_.num_heads : 1, H = repeats ? U : config_.num_heads;
    Arrays in;
    const auto set = [&](const std::string& name, std::vector<int64_t> shape, const Matrix& rows) {
      Array& array = in[name] = {std::move(shape), {}};
      for (const Vector& row : rows) array.data.insert(array.data.end(), row.begin(), row.end());
    };
    const auto set_vector = [&](const std::string& name, std::vector<int64_t> shape, const Vector& values) {
      in[name] = {std::move(shape), values};
    };
    const auto projected = [&](const char* name) { return product(at + name, x); };
    const auto low_rank = [&](const std::string& name, const std::string& bias = "") {
      return product(at + name + ".1.weight", product(at + name + ".0.weight", x), bias);
    };

    const Matrix key = repeated(convolved(projected("k_proj.weight"), at + "k_conv1d.weight"), H / group, group);
    set("q", {1, T, H, K}, repeated(convolved(projected("q_proj.weight"), at + "q_conv1d.weight"), H / group, group));
    set("k", {1, T, H, K}, key);
    set("v", {1, T, U, V}, convolved(projected("v_proj.weight"), at + "v_conv1d.weight"));
    const double most = config_.allow_neg_eigval ? 2 : 1;
    if (has(at + "b_proj.weight")) {
      const Matrix beta = each(projected("b_proj.weight"), [&](double y) { return most * sigmoid(y); });
      set("beta", {1, T, U}, repeats ? repeated(beta, H / group, group) : beta);
    }
    if (has(at + "b_erase_proj.weight")) set("beta_erase", {1, T, U}, each(projected("b_erase_proj.weight"), sigmoid));
    if (has(at + "b_atk_proj.weight")) set("beta_atk", {1, T, H}, each(projected("b_atk_proj.weight"), sigmoid));
    if (has(at + "A_log_atk")) {
      set("g_atk", {1, T, H}, decay(projected(repeats ? "a_proj.weight" : "a_atk_proj.weight"), at, "_atk"));
    }
    if (has(at + "f_proj.0.weight")) {
      set("g", {1, T, U, K}, decay(low_rank("f_proj"), at, ""));
    } else if (has(at + "A_log")) {
      set("g", {1, T, U}, decay(projected("a_proj.weight"), at, ""));
    } else if (config_.spec.decay == Decay::kConst) {
      Vector g;  // RetNet's
      for (int64_t u = 0; u < U; ++u) g.push_back(std::log(1 - std::pow(2, -5 - static_cast<double>(u))));
      set_vector("g", {U}, g);
    }
    const auto own = [&](const std::string& name) {
      const std::vector<float> values = model_.parameter(at + name);
      return Vector(values.begin(), values.end());
    };
    if (has(at + "log_atk_scale")) set_vector("log_atk_scale", {H}, own("log_atk_scale"));
    if (has(at + "d")) set_vector("d", {H}, own("d"));
    if (has(at + "lambda")) {
      Vector ridge = own("lambda");
      for (double& value : ridge) value = 0.25 + softplus(value);
      const bool per_head = static_cast<int64_t>(ridge.size()) == H;
      set_vector("ridge", per_head ? std::vector<int64_t>{H} : std::vector<int64_t>{H, K}, ridge);
    }
    const bool dplr = config_.spec.solve == Solve::kDplr;
    const bool free_write = config_.spec.key == Precond::kFree, free_erase = config_.spec.erase == Erase::kFree;
    if (dplr || free_write || free_erase) {
      Matrix erase = has(at + "erase_proj.weight") ? projected("erase_proj.weight") : key;
      for (Vector& row : erase) {
        for (int64_t h = 0; h < H; ++h) {
          double squares = 0;
          for (int64_t i = h * K; i < (h + 1) * K; ++i) squares += row[i] * row[i];
          for (int64_t i = h * K; i < (h + 1) * K; ++i) row[i] /= std::sqrt(squares + 1e-6);
        }
      }
      const Tying tying = config_.spec.tying;
      const std::vector<int64_t> shape = {1, T, H, K};
      if (dplr) set(tying == Tying::kRwkv7 ? "kk" : "a", shape, erase);
      if (tying != Tying::kAEqB) {
        Matrix eta = each(low_rank("eta_proj"), [&](double y) { return (free_write ? 2 : 1) * sigmoid(y); });
        if (tying == Tying::kRwkv7) set("eta", shape, eta);
        for (int64_t t = 0; t < T; ++t) {
          for (int64_t i = 0; i < H * K; ++i) eta[t][i] *= erase[t][i];
        }
        if (free_write) set("k_write", shape, eta);
        if (free_erase) set("k_erase", shape, eta);
        if (dplr && tying == Tying::kGeneral) set("b", shape, eta);
        if (tying == Tying::kBEqK) set("a", shape, eta);
      }
    }

    Spec spec = config_.spec;
    spec.l2norm = true;
    spec.l2norm_eps = 1e-6;
    const bool scales = config_.row != "mesa" && config_.row != "rwkv7";
    spec.scale = scales ? 1 / std::sqrt(static_cast<double>(K)) : 1;
    const Array o = reference_forward(spec, in).at("o");
    Matrix rows;
    for (int64_t t = 0; t < T; ++t) rows.emplace_back(o.data.begin() + t * U * V, o.data.begin() + (t + 1) * U * V);
    rows = norm(rows, at + "o_norm.weight");
    const bool low_rank_gate = has(at + "g_proj.0.weight");
    if (low_rank_gate || has(at + "g_proj.weight")) {
      const Matrix gate = low_rank_gate ? low_rank("g_proj", at + "g_proj.1.bias") : projected("g_proj.weight");
      const bool is_silu = config_.output_gate == OutputGate::kSilu;
      for (int64_t t = 0; t < T; ++t) {
        for (int64_t i = 0; i < U * V; ++i) rows[t][i] *= is_silu ? silu(gate[t][i]) : sigmoid(gate[t][i]);
      }
    }
    return product(at + "o_proj.weight", rows);
  }

  // Pairs (i, i + half) turn by t theta^(-i / half).
  static void rotate(Matrix& x, int64_t head_dim, double theta) {
    const int64_t half = head_dim / 2;
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (int64_t begin = 0; begin < static_cast<int64_t>(x[t].size()); begin += head_dim) {
        for (int64_t i = 0; i < half; ++i) {
          const double angle = static_cast<double>(t) * std::pow(theta, -static_cast<double>(i) / half);
          const double low = x[t][begin + i], high = x[t][begin + half + i];
          x[t][begin + i] = low * std::cos(angle) - high * std::sin(angle);
          x[t][begin + half + i] = high * std::cos(angle) + low * std::sin(angle);
        }
      }
    }
  }

  Matrix softmax_attention(const AttentionConfig& attention, const std::string& at, const Matrix& x) const {
    const int64_t D = config_.hidden_size / attention.num_heads, group = attention.num_heads / attention.num_kv_heads;
    const auto projected = [&](const std::string& name) {
      return product(at + name + "_proj.weight", x, attention.qkv_bias ? at + name + "_proj.bias" : "");
    };
    Matrix q = projected("q"), k = projected("k");
    const Matrix v = projected("v");
    if (attention.qk_norm) q = norm(q, at + "q_norm.weight"), k = norm(k, at + "k_norm.weight");
    rotate(q, D, attention.rope_theta);
    rotate(k, D, attention.rope_theta);
    Matrix o(x.size(), Vector(static_cast<std::size_t>(attention.num_heads * D)));
    for (int64_t t = 0; t < static_cast<int64_t>(x.size()); ++t) {
      const int64_t first = attention.window > 0 ? std::max<int64_t>(0, t - attention.window + 1) : 0;
      for (int64_t h = 0; h < attention.num_heads; ++h) {
        Vector weights;
        double sum = 0;
        for (int64_t s = first; s <= t; ++s) {
          double dot = 0;
          for (int64_t i = 0; i < D; ++i) dot += q[t][h * D + i] * k[s][h / group * D + i];
          sum += weights.emplace_back(std::exp(dot / std::sqrt(static_cast<double>(D))));
        }
        for (int64_t s = first; s <= t; ++s) {
          for (int64_t i = 0; i < D; ++i) o[t][h * D + i] += weights[s - first] / sum * v[s][h / group * D + i];
        }
      }
    }
    return product(at + "o_proj.weight", o);
  }

  const Model& model_;
  Config config_;
};

struct Case {
  std::string name, config;
};

std::string config_of(const std::string& type, const std::string& more, double norm_eps = 1e-2) {
  return R"({"model_type": ")" + type + R"(", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2,
      "vocab_size": 30, "initializer_range": 0.2, "norm_eps": )" +
         std::to_string(norm_eps) + ", " + more + "}";
}

std::string row_of(const Row& row) { return R"("row": ")" + std::string(row.name) + R"(", "num_heads": 3, )"; }

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const Row& row : rows()) {
    list.push_back({std::string(row.name), config_of("dgps", row_of(row) + R"("head_dim": 16, "expand_v": 1.5)")});
  }
  // Heads of their own sizes, a gate, gains up to 2, tied embeddings; PKDA repeats q, k and beta.
  const std::string grouped = R"("num_heads": 2, "num_v_heads": 4, "head_dim": 10, "allow_neg_eigval": true)";
  for (const char* type : {"gated_deltanet", "precond_gated_deltanet", "kda", "precond_kda"}) {
    list.push_back({std::string(type) + "_grouped", config_of(type, grouped + R"(, "tie_word_embeddings": true)")});
  }
  list.push_back({"delta_net_sigmoid", config_of("delta_net", R"("num_heads": 2, "use_gate": true, "conv_size": 3,
      "output_gate_activation": "sigmoid")")});
  list.push_back({"retnet_no_conv", config_of("dgps", R"("row": "retnet", "num_heads": 7, "head_dim": 8,
      "use_short_conv": false, "expand_v": 1.0)")});
  list.push_back({"transformer", config_of("transformer", R"("num_heads": 4, "num_kv_heads": 2, "qk_norm": true,
      "rope_theta": 100.0, "qkv_bias": true)")});
  list.push_back({"hybrid", config_of("dgps", R"("row": "gdn", "num_heads": 2, "head_dim": 16, "attn": [{"layers": [1],
      "num_heads": 3, "num_kv_heads": 1, "window_size": 5}])")});
  return list;
}

class ModelReference : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override { Arena::set_poison(true); }

  // With `tiny` queries, keys and erase keys have squares near the epsilons of their norms.
  static Model model_of(const std::string& config, bool tiny) {
    Model model = Model::from_config(config, 3, {.threads = 2});
    std::mt19937 random(4);
    std::normal_distribution<float> normal(0.0f, 0.2f);
    for (const ParameterInfo& info : model.parameters()) {
      std::vector<float> values = model.parameter(info.name);
      const auto is = [&](const char* part) { return info.name.find(part) != std::string::npos; };
      // Decays that remember some tokens: A starts up to 16.
      if (is("A_log")) std::fill(values.begin(), values.end(), -1.0f);
      for (float& value : values) value += normal(random);
      if (tiny && (is("q_conv1d") || is("k_conv1d") || is("erase_proj"))) {
        for (float& value : values) value *= 3e-4f;
      }
      model.set_parameter(info.name, values);
    }
    return model;
  }

  static void expect_reference(Model& model, int64_t tokens, double bound) {
    std::vector<int32_t> ids;
    for (int64_t t = 0; t < tokens; ++t) ids.push_back(static_cast<int32_t>((t * 7 + t * t / 3) % 30));
    const Packed batch({ids});
    std::vector<float> logits(ids.size() * static_cast<std::size_t>(model.vocab_size()));
    model.logits(batch.ids, batch.offsets, logits.data());
    EXPECT_LE(relative_error(logits, ReferenceModel(model).logits(ids)), bound);
  }
};

TEST_P(ModelReference, LogitsFollowTheDocuments) {
  Model model = model_of(GetParam().config, false);
  expect_reference(model, 37, 2e-5);
  expect_reference(model, 1, 2e-5);  // in the recurrent form
}

TEST_P(ModelReference, SoDoSmallKeys) {
  Model model = model_of(GetParam().config, true);
  expect_reference(model, 21, 2e-4);  // cancellation under the norm of a head
}

INSTANTIATE_TEST_SUITE_P(Models, ModelReference, testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace deltanet::test
