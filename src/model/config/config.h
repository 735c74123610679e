#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deltanet/rows.h"

namespace deltanet {

// Softmax attention in some layers of a stack, or in all of them for the Transformer baseline.
struct AttentionConfig {
  std::vector<int64_t> layers;
  int64_t num_heads = 0, num_kv_heads = 0;
  bool qkv_bias = false;
  bool qk_norm = false;
  int64_t window = 0;  // tokens that a token sees, itself included; 0: all before it
  double rope_theta = 10000.0;
};

enum class OutputGate { kNone, kSilu, kSigmoidLowRank, kSigmoid };

// What config.json of a checkpoint says, with upstream's defaults filled in.
struct Config {
  std::string model_type;  // upstream's names, or kRowModelType for the rows that upstream has no model for
  std::string row;         // of the DGPS table; empty for the Transformer
  Spec spec;               // of that row, with l2norm on and the squash parameters of the file

  int64_t vocab_size = 32000;
  int64_t hidden_size = 0, num_hidden_layers = 0, intermediate_size = 0;
  int64_t num_heads = 0, num_v_heads = 0;
  int64_t head_dim = 0, head_v_dim = 0;  // of keys and of values
  int64_t conv_size = 4;                 // 0: no short convolution
  OutputGate output_gate = OutputGate::kNone;
  bool allow_neg_eigval = false;  // beta in [0, 2]
  bool use_l2warp = false;        // training pulls the largest logits towards zero
  bool tie_word_embeddings = true;
  double norm_eps = 1e-6;
  double initializer_range = 0.02;
  double a_init_lower = 0.0;         // A = exp(A_log) starts uniform in [this, 16]
  double log_atk_scale_init = -0.2;  // of models with preconditioner
  std::vector<AttentionConfig> attention;
  std::optional<int64_t> bos_token_id, eos_token_id;
  // What programs around the model take for its longest context; nothing here depends on it. The recurrence has none.
  std::optional<int64_t> max_position_embeddings;

  // The text this was read from; written back with a checkpoint, so that fields we do not use survive. Empty for
  // presets.
  std::string source;

  const AttentionConfig* attention_of(int64_t layer) const;  // null: the recurrence
};

inline constexpr std::string_view kRowModelType = "dgps";

// Reads the text of a config.json. `file` names it in errors; every error names the field, what it holds and what was
// expected.
enum class OtherFields { kIgnored, kRefused };  // that no model of this type has
Config parse_config(std::string_view text, const std::string& file, OtherFields others = OtherFields::kIgnored);
Config load_config(const std::string& path);

// The text of config.json: config.source where there is one, with `dtype` ("float32", ...) set.
std::string config_text(const Config& config, std::string_view dtype);

// "pgdn-340m", "kda-1b": any row of the table, or "transformer", in one of the paper's sizes.
Config preset_config(std::string_view name);
std::vector<std::string> preset_names();

// A model of this row with all other fields of `size` (a preset size such as "340m"). Used for presets and tests.
Config row_config(std::string_view row, std::string_view size);

// Throws Error when sizes contradict each other; called by everything above.
void validate(const Config& config, const std::string& file);

}  // namespace deltanet
