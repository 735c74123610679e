// Our Config as a config.json with upstream's fields.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/config/config.h"
#include "model/config/model_types.h"
#include "recurrence/preconditioners.h"

namespace deltanet {
namespace {

using Json = nlohmann::ordered_json;

Json attention_json(const AttentionConfig& attention) {
  return {{"layers", attention.layers},
          {"num_heads", attention.num_heads},
          {"num_kv_heads", attention.num_kv_heads},
          {"qkv_bias", attention.qkv_bias},
          {"window_size", attention.window > 0 ? Json(attention.window) : Json()},
          {"rope_theta", attention.rope_theta}};
}

void add_recurrence(const Config& config, Json& json) {
  const double expand_v = static_cast<double>(config.head_v_dim) / static_cast<double>(config.head_dim);
  json["attn_mode"] = "chunk";
  json["allow_neg_eigval"] = config.allow_neg_eigval;
  json["conv_size"] = std::max<int64_t>(config.conv_size, 1);
  json["use_short_conv"] = config.conv_size > 0;
  if (config.model_type == "delta_net") {
    const auto share = [&](int64_t head) {
      return static_cast<double>(head * config.num_heads) / static_cast<double>(config.hidden_size);
    };
    json["expand_k"] = share(config.head_dim);
    json["expand_v"] = share(config.head_v_dim);
    json["qk_activation"] = "silu";
    json["qk_norm"] = "l2";
    json["use_beta"] = true;
    json["use_output_norm"] = true;
  } else {
    json["expand_v"] = expand_v;
    json["head_dim"] = config.head_dim;
    json["num_v_heads"] = config.num_v_heads == config.num_heads ? Json() : Json(config.num_v_heads);
  }
  if (config.output_gate != OutputGate::kSigmoidLowRank) json["use_gate"] = config.output_gate != OutputGate::kNone;
  if (config.output_gate == OutputGate::kSigmoid) json["output_gate_activation"] = "sigmoid";
  if (squashes(config.spec)) {
    json["squash_x"] = config.spec.x;
    json["squash_eps"] = config.spec.eps;
  }
  // Upstream's configs have these with the preconditioner; others get them where they say something.
  const bool preconditioned = squashes(config.spec);
  if (preconditioned || config.log_atk_scale_init != Config().log_atk_scale_init) {
    json["log_atk_scale_init"] = config.log_atk_scale_init;
  }
  const bool is_row = config.model_type == kRowModelType;
  if (preconditioned || is_row || config.a_init_lower != usual_a_init_lower(config.spec)) {
    json["a_log_init_lower"] = config.a_init_lower;
  }
  if (is_row) {
    json["row"] = config.row;
    Spec base = find_row(config.row).spec;
    base.l2norm = true;  // what a model takes unless the file says something else
    const auto ours = options(config.spec), table = options(base);
    Json spec = Json::object();
    for (std::size_t i = 0; i < ours.size(); ++i) {
      if (ours[i].second != table[i].second) spec[ours[i].first] = ours[i].second;
    }
    json["spec"] = spec;
  }
}

void add_transformer(const Config& config, Json& json) {
  const AttentionConfig& attention = config.attention.front();
  json["num_kv_heads"] = attention.num_kv_heads;
  json["qkv_bias"] = attention.qkv_bias;
  json["qk_norm"] = attention.qk_norm;
  json["window_size"] = attention.window > 0 ? Json(attention.window) : Json();
  json["rope_theta"] = attention.rope_theta;
}

Json fresh_json(const Config& config) {
  const auto type = std::find_if(std::begin(kModelTypes), std::end(kModelTypes),
                                 [&](const ModelType& t) { return t.name == config.model_type; });
  const auto id = [](const std::optional<int64_t>& value) { return value ? Json(*value) : Json(); };
  Json json = {{"architectures", {type->architecture}},
               {"bos_token_id", id(config.bos_token_id)},
               {"eos_token_id", id(config.eos_token_id)},
               {"fuse_cross_entropy", true},
               {"fuse_norm", true},
               {"fuse_swiglu", true},
               {"hidden_act", "swish"},
               {"hidden_ratio", 4},
               {"hidden_size", config.hidden_size},
               {"initializer_range", config.initializer_range},
               {"intermediate_size", config.intermediate_size},
               {"model_type", config.model_type},
               {"norm_eps", config.norm_eps},
               {"num_heads", config.num_heads},
               {"num_hidden_layers", config.num_hidden_layers},
               {"pad_token_id", Json()},
               {"tie_word_embeddings", config.tie_word_embeddings},
               {"use_cache", true},
               {"use_l2warp", config.use_l2warp},
               {"vocab_size", config.vocab_size}};
  if (config.max_position_embeddings) json["max_position_embeddings"] = *config.max_position_embeddings;
  if (config.model_type == kTransformer) {
    add_transformer(config, json);
    return json;
  }
  add_recurrence(config, json);
  if (config.attention.empty()) {
    json["attn"] = Json();
  } else if (config.attention.size() == 1) {
    json["attn"] = attention_json(config.attention.front());
  } else {
    json["attn"] = Json::array();
    for (const AttentionConfig& attention : config.attention) json["attn"].push_back(attention_json(attention));
  }
  return json;
}

}  // namespace

std::string config_text(const Config& config, std::string_view dtype) {
  // Sorted keys, as upstream writes them.
  nlohmann::json json =
      config.source.empty() ? nlohmann::json(fresh_json(config)) : nlohmann::json::parse(config.source);
  json["dtype"] = dtype;
  if (json.contains("torch_dtype")) json["torch_dtype"] = dtype;  // its name in older files, which would contradict
  return json.dump(2, ' ', /*ensure_ascii=*/true) + "\n";
}

}  // namespace deltanet
