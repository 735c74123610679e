// config.json: upstream's fields in, our Config out. config_write.cc goes the other way.

#include "model/config/config.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/file.h"
#include "deltanet/error.h"
#include "model/config/config_fields.h"
#include "model/config/model_types.h"
#include "recurrence/preconditioners.h"

namespace deltanet {
namespace {

const ModelType& find_model_type(const Fields& fields) {
  const std::string name = fields.text("model_type");
  std::string known;
  for (const ModelType& type : kModelTypes) {
    if (type.name == name) return type;
    known += (known.empty() ? "" : ", ") + std::string(type.name);
  }
  fields.fail("model_type", "one of " + known);
}

// Options of upstream's classes that change the result and that these models do not have.
void refuse_unsupported(const Fields& fields, std::string_view model_type) {
  fields.require_text("hidden_act", {"swish", "silu"});
  fields.require_text("qk_activation", {"silu"});
  if (model_type == "delta_net") fields.require_text("qk_norm", {"l2"});  // a flag in the Transformer
  fields.require_flag("use_beta", true);
  fields.require_flag("use_output_norm", true);
  fields.require_flag("safe_gate", false);
  fields.require_flag("conv_bias", false);
  fields.require_null("lower_bound");
  fields.require_null("attnres_block_size");
}

AttentionConfig parse_attention(const Fields& fields, int64_t hidden_size, int64_t num_hidden_layers,
                                OtherFields others) {
  AttentionConfig attention;
  attention.layers = fields.integers("layers", 0, num_hidden_layers - 1);
  attention.num_heads = fields.integer("num_heads", 1, hidden_size);
  attention.num_kv_heads = fields.integer_or("num_kv_heads", attention.num_heads, 1, attention.num_heads);
  attention.qkv_bias = fields.flag_or("qkv_bias", false);
  attention.window = fields.integer_or("window_size", 0, 1, kLargestSize);
  attention.rope_theta = fields.number_or("rope_theta", 10000.0, 1.0, 1e12);
  if (others == OtherFields::kRefused) fields.refuse_others("{}");
  return attention;
}

void parse_head_sizes(const Fields& fields, Config& config) {
  const int64_t hidden = config.hidden_size;
  const bool one = config.model_type == "delta_net" || config.model_type == "kda" || config.model_type == "precond_kda";
  const double expand_v = fields.number_or("expand_v", one ? 1.0 : 2.0, 1e-3, 64.0);
  double key_size = 0, value_size = 0;
  if (config.model_type == "delta_net") {
    const double expand_k = fields.number_or("expand_k", 1.0, 1e-3, 64.0);
    const auto heads = static_cast<double>(config.num_heads);
    key_size = static_cast<double>(hidden) * expand_k / heads;
    value_size = static_cast<double>(hidden) * expand_v / heads;
  } else {
    key_size = static_cast<double>(fields.integer("head_dim", 1, kLargestHead));
    value_size = key_size * expand_v;
  }
  config.head_dim = std::llround(key_size);
  config.head_v_dim = std::llround(value_size);
  if (std::abs(key_size - static_cast<double>(config.head_dim)) > 1e-5 * key_size) {
    fields.fail("expand_k", "a factor that gives whole head sizes, not " + std::to_string(key_size));
  }
  if (std::abs(value_size - static_cast<double>(config.head_v_dim)) > 1e-5 * value_size) {
    fields.fail("expand_v", "a factor that gives whole head sizes, not " + std::to_string(value_size));
  }
}

OutputGate parse_output_gate(const Fields& fields, const Config& config) {
  if (config.model_type == "kda" || config.model_type == "precond_kda") return OutputGate::kSigmoidLowRank;
  if (!fields.flag_or("use_gate", config.model_type != "delta_net" && config.model_type != kRowModelType)) {
    return OutputGate::kNone;
  }
  fields.require_text("output_gate_activation", {"swish", "silu", "sigmoid"});
  return fields.text_or("output_gate_activation", "swish") == "sigmoid" ? OutputGate::kSigmoid : OutputGate::kSilu;
}

// The choices of the row, as the file or the table has them, and what every model adds: normalized queries and keys.
void parse_spec(const Fields& fields, Config& config) {
  // What the table has to say about a field of the file.
  const auto checked = [&](std::string_view field, const auto& call) {
    try {
      call();
    } catch (const Error& error) {
      fields.fail(field, "a valid choice (" + std::string(error.what()) + ")");
    }
  };
  checked("row", [&] { config.spec = find_row(config.row).spec; });
  config.spec.l2norm = true;
  if (config.model_type == kRowModelType) {
    const auto options = fields.object_or_empty("spec");
    checked("spec", [&] {
      set_options(config.spec, options);
      validate(config.spec);
    });
  } else if (config.model_type.starts_with("precond_")) {
    config.spec.x = fields.number_or("squash_x", 1.5, 1.0, 2.0);
    config.spec.eps = fields.number_or("squash_eps", 1e-6, 1e-30, 1.0);
  }
}

void parse_recurrence(const Fields& fields, Config& config) {
  config.num_v_heads = fields.integer_or("num_v_heads", config.num_heads, 1, kLargestHeads);
  parse_head_sizes(fields, config);
  config.output_gate = parse_output_gate(fields, config);
  config.conv_size = fields.flag_or("use_short_conv", true) ? fields.integer_or("conv_size", 4, 1, 8) : 0;
  config.allow_neg_eigval = fields.flag_or("allow_neg_eigval", false);
  config.a_init_lower = fields.number_or("a_log_init_lower", usual_a_init_lower(config.spec), 0.0, 16.0);
  config.log_atk_scale_init = fields.number_or("log_atk_scale_init", -0.2, -100.0, 100.0);
}

void parse_transformer(const Fields& fields, Config& config) {
  AttentionConfig attention;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) attention.layers.push_back(layer);
  attention.num_heads = config.num_heads;
  attention.num_kv_heads = fields.integer_or("num_kv_heads", config.num_heads, 1, config.num_heads);
  attention.qkv_bias = fields.flag_or("qkv_bias", false);
  attention.qk_norm = fields.flag_or("qk_norm", false);
  attention.window = fields.integer_or("window_size", 0, 1, kLargestSize);
  attention.rope_theta = fields.number_or("rope_theta", 10000.0, 1.0, 1e12);
  config.attention.push_back(attention);
}

int64_t mlp_width(int64_t hidden_size, double ratio) {
  const auto width = static_cast<int64_t>(static_cast<double>(hidden_size) * ratio * 2 / 3);
  return (width + 255) / 256 * 256;
}

template <class Fail>
void check_size(const Config& config, const Fail& fail) {
  constexpr double kMost = 1099511627776.0;  // 2^40: no product of sizes overflows
  const auto number = [](int64_t n) { return static_cast<double>(n); };
  const double hidden = number(config.hidden_size);
  const double heads = number(config.num_heads + config.num_v_heads) * number(config.head_dim + config.head_v_dim);
  const double per_layer = hidden * (3 * number(config.intermediate_size) + 4 * (heads + hidden)) + heads * heads;
  const double total = per_layer * number(config.num_hidden_layers) + 2 * hidden * number(config.vocab_size);
  if (total <= kMost) return;
  fail("hidden_size, intermediate_size, num_heads, head_dim, num_hidden_layers, vocab_size",
       "together they give a model of about " + std::to_string(total) + " parameters; expected at most 2^40");
}

}  // namespace

const AttentionConfig* Config::attention_of(int64_t layer) const {
  for (const AttentionConfig& one : attention) {
    if (std::find(one.layers.begin(), one.layers.end(), layer) != one.layers.end()) return &one;
  }
  return nullptr;
}

Config parse_config(std::string_view text, const std::string& file, OtherFields others) {
  const Fields fields(text, file);
  const ModelType& type = find_model_type(fields);
  refuse_unsupported(fields, type.name);

  Config config;
  config.model_type = type.name;
  config.row = type.name == kRowModelType ? fields.text("row") : std::string(type.row);
  config.hidden_size = fields.integer("hidden_size", 1, kLargestSize);
  config.num_hidden_layers = fields.integer("num_hidden_layers", 1, kLargestLayers);
  config.num_heads = fields.integer("num_heads", 1, kLargestHeads);
  config.vocab_size = fields.integer("vocab_size", 1, kLargestVocabulary);
  const double ratio = fields.number_or("hidden_ratio", 4.0, 0.01, 1000.0);
  config.intermediate_size =
      fields.integer_or("intermediate_size", mlp_width(config.hidden_size, ratio), 1, kLargestSize);
  config.norm_eps = fields.number_or("norm_eps", 1e-6, 0.0, 1.0);
  config.use_l2warp = fields.flag_or("use_l2warp", false);
  config.initializer_range = fields.number_or("initializer_range", 0.02, 0.0, 10.0);
  config.tie_word_embeddings = fields.flag_or("tie_word_embeddings", false);
  config.bos_token_id = fields.id_or_none("bos_token_id", config.vocab_size);
  config.max_position_embeddings = fields.integer_or_none("max_position_embeddings");
  config.eos_token_id = fields.id_or_none("eos_token_id", config.vocab_size);

  if (type.name == kTransformer) {
    parse_transformer(fields, config);
  } else {
    parse_spec(fields, config);
    parse_recurrence(fields, config);
    for (const Fields& one : fields.objects_or_empty("attn")) {
      config.attention.push_back(parse_attention(one, config.hidden_size, config.num_hidden_layers, others));
    }
  }
  validate(config, file);
  if (others == OtherFields::kRefused) fields.refuse_others(config_text(config, "float32"));
  config.source = text;
  return config;
}

Config load_config(const std::string& path) { return parse_config(read_file(path, int64_t{16} << 20), path); }

void validate(const Config& config, const std::string& file) {
  const auto fail = [&](const std::string& field, const std::string& text) {
    throw Error("[config] " + file + ": " + field + ": " + text);
  };
  if (config.intermediate_size < 1) fail("hidden_ratio", "gives an MLP without width; expected a larger number");
  check_size(config, fail);
  if (!config.row.empty() && config.num_v_heads % config.num_heads != 0) {
    fail("num_v_heads", "given " + std::to_string(config.num_v_heads) +
                            "; expected a multiple of num_heads = " + std::to_string(config.num_heads));
  }
  const bool one_to_one = shares_gates(config.spec);
  if (!config.row.empty() && one_to_one && config.num_v_heads != config.num_heads) {
    fail("num_v_heads", "given " + std::to_string(config.num_v_heads) + "; expected num_heads = " +
                            std::to_string(config.num_heads) + ", because " + config.row + " has no grouped heads");
  }
  const std::string prefix = config.row.empty() ? "" : "attn.";
  std::set<int64_t> seen;
  for (const AttentionConfig& attention : config.attention) {
    if (config.hidden_size % (2 * attention.num_heads) != 0) {
      fail(prefix + "num_heads", "given " + std::to_string(attention.num_heads) + "; expected hidden_size = " +
                                     std::to_string(config.hidden_size) + " to be an even multiple of it");
    }
    if (attention.num_heads % attention.num_kv_heads != 0) {
      fail(prefix + "num_kv_heads", "given " + std::to_string(attention.num_kv_heads) +
                                        "; expected a divisor of num_heads = " + std::to_string(attention.num_heads));
    }
    for (int64_t layer : attention.layers) {
      if (!seen.insert(layer).second) fail(prefix + "layers", "layer " + std::to_string(layer) + " is named twice");
    }
  }
}

// ---- presets

namespace {

struct Size {
  std::string_view name;
  int64_t hidden_size, num_heads, num_hidden_layers, head_dim, head_dim_kda, vocab_size;
};
constexpr Size kSizes[] = {
    {"340m", 1024, 8, 24, 128, 128, 32000},
    {"1b", 1792, 14, 24, 128, 120, 32000},
    // Models of bytes for a laptop; not in the paper.
    {"5m", 256, 4, 6, 64, 64, 256},
    {"25m", 512, 4, 7, 128, 128, 256},
};

const Size& find_size(std::string_view name, std::string_view whole) {
  std::string known;
  for (const Size& size : kSizes) {
    if (size.name == name) return size;
    known += (known.empty() ? "" : ", ") + std::string(size.name);
  }
  throw Error("[preset] given \"" + std::string(whole) + "\"; expected ROW-SIZE such as pgdn-340m, with SIZE one of " +
              known);
}

}  // namespace

Config row_config(std::string_view row, std::string_view size_name) {
  const Size& size = find_size(size_name, std::string(row) + "-" + std::string(size_name));
  Config config;
  config.hidden_size = size.hidden_size;
  config.num_hidden_layers = size.num_hidden_layers;
  config.num_heads = size.num_heads;
  config.vocab_size = size.vocab_size;
  config.intermediate_size = mlp_width(size.hidden_size, 4.0);
  config.bos_token_id = 1;
  config.eos_token_id = 2;
  if (row == kTransformer) {
    config.model_type = kTransformer;
    AttentionConfig attention;
    for (int64_t layer = 0; layer < size.num_hidden_layers; ++layer) attention.layers.push_back(layer);
    attention.num_heads = attention.num_kv_heads = size.num_heads;
    config.attention.push_back(attention);
    config.max_position_embeddings = 2048;
  } else {
    config.row = find_row(row).name;
    config.spec = find_row(row).spec;
    config.spec.l2norm = true;
    const auto type = std::find_if(std::begin(kModelTypes), std::end(kModelTypes),
                                   [&](const ModelType& t) { return t.row == config.row; });
    config.model_type = type == std::end(kModelTypes) ? kRowModelType : type->name;
    const bool is_kda = config.model_type == "kda" || config.model_type == "precond_kda";
    config.num_v_heads = size.num_heads;
    config.head_dim = config.head_v_dim = is_kda ? size.head_dim_kda : size.head_dim;
    config.output_gate = is_kda ? OutputGate::kSigmoidLowRank : OutputGate::kNone;
    config.a_init_lower = usual_a_init_lower(config.spec);
  }
  validate(config, "preset");
  return config;
}

Config preset_config(std::string_view name) {
  const std::size_t dash = name.rfind('-');
  if (dash == std::string_view::npos) find_size("", name);
  return row_config(name.substr(0, dash), name.substr(dash + 1));
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Size& size : kSizes) {
    for (const Row& row : rows()) names.push_back(std::string(row.name) + "-" + std::string(size.name));
    names.push_back(std::string(kTransformer) + "-" + std::string(size.name));
  }
  return names;
}

}  // namespace deltanet
