#include "experiments/small_config.h"

namespace deltanet {

Config small_config(const std::string& row, const SmallSizes& sizes, const std::string& operation) {
  Config config = row_config(row, "340m");
  config.hidden_size = sizes.d_model;
  config.num_hidden_layers = sizes.layers;
  config.num_heads = config.num_v_heads = sizes.heads;
  config.head_dim = config.head_v_dim = sizes.d_model / sizes.heads;
  config.intermediate_size = sizes.intermediate;
  config.vocab_size = sizes.vocab_size;
  config.bos_token_id.reset();
  config.eos_token_id.reset();
  for (AttentionConfig& attention : config.attention) {
    attention.num_heads = attention.num_kv_heads = sizes.heads;
    attention.layers.resize(sizes.layers);
  }
  validate(config, operation);
  return config;
}

}  // namespace deltanet
