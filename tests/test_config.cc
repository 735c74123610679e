// config.json: what it refuses and how it says so, hybrid stacks, presets and their parameter counts, and the way back
// to text.

#include "model/config/config.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/rng.h"
#include "deltanet/error.h"
#include "deltanet/model.h"
#include "model/layout.h"
#include "model_fixture.h"
#include "recurrence/preconditioners.h"

namespace deltanet::test {
namespace {

using nlohmann::json;

json valid() {
  return {{"model_type", "precond_gated_deltanet"},
          {"hidden_size", 32},
          {"num_hidden_layers", 3},
          {"num_heads", 2},
          {"head_dim", 16},
          {"expand_v", 1.0},
          {"vocab_size", 40}};
}

json hybrid(const json& attention) {
  json config = valid();
  config["attn"] = attention;
  return config;
}

// What the parser says to a config.json; empty: it is content.
std::string complaint(const json& config) {
  try {
    parse_config(config.dump(), "some/config.json");
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Config, ValidOnesAreTaken) {
  EXPECT_EQ(complaint(valid()), "");
  const Config config = parse_config(valid().dump(), "config.json");
  EXPECT_EQ(config.row, "pgdn");
  EXPECT_EQ(config.intermediate_size, 256);
  EXPECT_FALSE(config.tie_word_embeddings);
}

// What a file leaves out means what upstream's code would take, for every type.
TEST(Config, FieldsThatAreLeftOutHaveUpstreamsDefaults) {
  struct Case {
    const char *type, *row;
    double expand_v, a_init_lower;
    OutputGate gate;
  };
  const json sizes = {{"hidden_size", 64}, {"num_hidden_layers", 2}, {"num_heads", 4}, {"vocab_size", 100}};
  for (const Case& one : {Case{"delta_net", "delta_net", 1, 0, OutputGate::kNone},
                          {"gated_deltanet", "gdn", 2, 0, OutputGate::kSilu},
                          {"kda", "kda", 1, 1, OutputGate::kSigmoidLowRank},
                          {"precond_deltanet", "pdn", 2, 0, OutputGate::kSilu},
                          {"precond_gated_deltanet", "pgdn", 2, 0, OutputGate::kSilu},
                          {"precond_kda", "pkda", 1, 1, OutputGate::kSigmoidLowRank},
                          {"dgps", "mamba2", 2, 0, OutputGate::kNone}}) {
    SCOPED_TRACE(one.type);
    json text = sizes;
    text["model_type"] = one.type;
    if (std::string(one.type) == "dgps") text["row"] = one.row;
    if (std::string(one.type) != "delta_net") text["head_dim"] = 16;  // DeltaNet's are shares of hidden_size
    const Config config = parse_config(text.dump(), "config.json");
    EXPECT_EQ(config.row, one.row);
    EXPECT_EQ(config.num_v_heads, 4);
    EXPECT_EQ(config.head_dim, 16);
    EXPECT_EQ(config.head_v_dim, std::lround(16 * one.expand_v));
    EXPECT_EQ(config.output_gate, one.gate);
    EXPECT_EQ(config.conv_size, 4);
    EXPECT_FALSE(config.allow_neg_eigval || config.use_l2warp || config.tie_word_embeddings);
    EXPECT_EQ(config.a_init_lower, one.a_init_lower);
    EXPECT_EQ(config.log_atk_scale_init, -0.2);
    EXPECT_EQ(config.spec.x, 1.5);
    EXPECT_EQ(config.spec.eps, 1e-6);
    EXPECT_TRUE(config.spec.l2norm);
    EXPECT_EQ(config.spec.l2norm_eps, 1e-6);
    EXPECT_EQ(config.norm_eps, 1e-6);
    EXPECT_EQ(config.initializer_range, 0.02);
    EXPECT_EQ(config.intermediate_size, 256);  // 64 * 4 * 2/3, up to a multiple of 256
    EXPECT_TRUE(config.attention.empty() && !config.bos_token_id && !config.eos_token_id);
  }
  json text = sizes;
  text["model_type"] = "transformer";
  const Config config = parse_config(text.dump(), "config.json");
  ASSERT_EQ(config.attention.size(), 1u);
  const AttentionConfig& attention = config.attention.front();
  EXPECT_EQ(attention.layers, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(attention.num_heads, 4);
  EXPECT_EQ(attention.num_kv_heads, 4);
  EXPECT_FALSE(attention.qkv_bias || attention.qk_norm);
  EXPECT_EQ(attention.window, 0);
  EXPECT_EQ(attention.rope_theta, 10000);
  // The width of the MLP: 2/3 of the ratio, rounded up.
  for (const auto& [hidden, ratio, width] : {std::tuple{96, 4.0, 256}, {97, 4.0, 512}, {1024, 3.0, 2048}}) {
    text.update({{"hidden_size", hidden * 4}, {"hidden_ratio", ratio / 4}, {"num_heads", 2}});
    EXPECT_EQ(parse_config(text.dump(), "").intermediate_size, width) << hidden << " " << ratio;
  }
}

TEST(Config, MissingFieldsAreNamed) {
  for (const char* field : {"model_type", "hidden_size", "num_hidden_layers", "num_heads", "head_dim", "vocab_size"}) {
    for (const bool is_null : {false, true}) {
      json config = valid();
      is_null ? void(config[field] = nullptr) : void(config.erase(field));
      const std::string text = complaint(config);
      EXPECT_NE(text.find(std::string("some/config.json: ") + field + ": missing; expected "), text.npos) << text;
    }
  }
}

struct Wrong {
  const char* field;
  json value;
};

std::vector<Wrong> wrong_values() {
  const char* const sizes[] = {"hidden_size", "num_hidden_layers", "num_heads",    "head_dim",         "vocab_size",
                               "num_v_heads", "conv_size",         "eos_token_id", "intermediate_size"};
  std::vector<Wrong> list;
  for (const char* size : sizes) {
    for (const json& value : {json(-1), json("8"), json(2.5), json(true), json::array({1}), json::object(),
                              json(int64_t{1} << 62), json(~uint64_t{0})}) {
      list.push_back({size, value});
    }
  }
  for (const char* size : {"hidden_size", "num_hidden_layers", "num_heads", "head_dim", "vocab_size"}) {
    list.push_back({size, 0});
  }
  for (const char* number : {"expand_v", "norm_eps", "initializer_range", "squash_x", "squash_eps", "hidden_ratio",
                             "a_log_init_lower", "log_atk_scale_init"}) {
    for (const json& value : {json("1"), json(-1e300), json(1e300), json::array()}) list.push_back({number, value});
  }
  for (const char* flag : {"tie_word_embeddings", "use_short_conv", "use_gate", "allow_neg_eigval", "use_l2warp"}) {
    for (const json& value : {json(1), json("true")}) list.push_back({flag, value});
  }
  const std::vector<Wrong> others = {{"model_type", "gpt2"},
                                     {"model_type", 7},
                                     {"hidden_act", "gelu"},
                                     {"squash_eps", 0.0},
                                     {"expand_v", 0.3},
                                     {"num_v_heads", 3},
                                     {"hidden_ratio", 0.01},
                                     {"output_gate_activation", "tanh"},
                                     {"eos_token_id", 40},
                                     {"bos_token_id", json::array({1, 2})},
                                     {"attn", 5},
                                     {"attn", json::array({5})}};
  list.insert(list.end(), others.begin(), others.end());
  return list;
}

TEST(Config, WrongValuesAreErrorsThatNameFileFieldAndValue) {
  for (const Wrong& wrong : wrong_values()) {
    json config = valid();
    config["use_gate"] = true;
    config[wrong.field] = wrong.value;
    const std::string text = complaint(config);
    EXPECT_EQ(text.find(std::string("[config] some/config.json: ") + wrong.field + ": g"), 0u)
        << wrong.field << " = " << wrong.value << ": " << text;
    EXPECT_NE(text.find("expected"), text.npos) << text;
  }
}

TEST(Config, SizesThatAreOnlyAbsurdTogetherAreErrors) {
  json config = valid();
  config["hidden_size"] = config["intermediate_size"] = 1 << 20;
  const std::string text = complaint(config);
  EXPECT_NE(text.find("some/config.json: hidden_size, intermediate_size"), text.npos) << text;
}

TEST(Config, WhatIsNoObjectIsAnError) {
  for (const char* text : {"", "[]", "7", "{", "{} {}", "{\"hidden_size\": 1, \"hidden_size\": 2}", "\"\\ud800\""}) {
    EXPECT_THROW(parse_config(text, "config.json"), Error) << text;
  }
}

TEST(Config, RowsAreNamedByTheTable) {
  json config = valid();
  config["model_type"] = "dgps";
  EXPECT_NE(complaint(config).find("some/config.json: row: missing"), std::string::npos);
  config["row"] = "pgdm";
  EXPECT_NE(complaint(config).find("some/config.json: row: given \"pgdm\""), std::string::npos) << complaint(config);
  config["row"] = "pgdn";
  EXPECT_EQ(complaint(config), "");
  for (const json& spec : {json{{"x", 3}}, json{{"x", "wide"}}, json{{"no_such", 1}}, json{{"tying", "rwkv7"}}}) {
    config["spec"] = spec;
    EXPECT_NE(complaint(config).find("some/config.json: spec: given "), std::string::npos) << complaint(config);
  }
  config["spec"] = {{"x", 1.25}};
  EXPECT_EQ(parse_config(config.dump(), "").spec.x, 1.25);
  // These rows have one value head for each key head.
  config.erase("spec");
  config["num_v_heads"] = 4;
  for (const char* row : {"mesa", "pgdn_tied"}) {
    config["row"] = row;
    EXPECT_NE(complaint(config).find("some/config.json: num_v_heads: given 4"), std::string::npos) << row;
  }
}

TEST(Config, HybridLists) {
  const json one = {{"layers", {0, 2}}, {"num_heads", 4}, {"num_kv_heads", 2}, {"window_size", 7}};
  const Config config = parse_config(hybrid(one).dump(), "");
  ASSERT_EQ(config.attention.size(), 1u);
  EXPECT_EQ(config.attention_of(1), nullptr);
  EXPECT_EQ(config.attention_of(2)->window, 7);
  const Config two = parse_config(hybrid({one, {{"layers", {1}}, {"num_heads", 1}}}).dump(), "");
  EXPECT_EQ(two.attention_of(0)->num_kv_heads, 2);
  EXPECT_EQ(two.attention_of(1)->num_kv_heads, 1);
}

TEST(Config, WrongHybridListsAreErrors) {
  const json good = {{"layers", {0}}, {"num_heads", 4}};
  const std::tuple<const char*, json, const char*> wrong[] = {
      {"layers", nullptr, "attn.layers: missing"},
      {"layers", {3}, "attn.layers: given [3]"},
      {"layers", {-1}, "attn.layers: given [-1]"},
      {"layers", {"0"}, "attn.layers: given"},
      {"layers", {0, 0}, "attn.layers: layer 0 is named twice"},
      {"num_heads", nullptr, "attn.num_heads: missing"},
      {"num_heads", 0, "attn.num_heads: given 0"},
      {"num_heads", 5, "attn.num_heads: given 5"},
      {"num_heads", 32, "attn.num_heads: given 32"},  // heads of one number: RoPE rotates pairs
      {"num_kv_heads", 3, "attn.num_kv_heads: given 3"},
      {"num_kv_heads", 8, "attn.num_kv_heads: given 8"},
      {"window_size", 0, "attn.window_size: given 0"},
      {"rope_theta", 0, "attn.rope_theta: given 0"},
  };
  for (const auto& [field, value, expected] : wrong) {
    json attention = good;
    attention[field] = value;
    const std::string text = complaint(hybrid(attention));
    EXPECT_NE(text.find(std::string("some/config.json: ") + expected), text.npos) << text;
  }
  const std::string text = complaint(hybrid({good, good}));
  EXPECT_NE(text.find("named twice"), text.npos) << text;
}

TEST(Config, ParameterCountsOfThePresets) {
  const std::map<std::string, int64_t> counts = {
      {"delta_net-340m", 341'594'112}, {"gdn-340m", 341'791'104},  {"pgdn-340m", 342'184'896},
      {"kda-340m", 354'226'368},       {"pkda-340m", 354'620'160}, {"gdn-1b", 995'009'952},
      {"pgdn-1b", 996'215'184},        {"kda-1b", 995'186'832},    {"pkda-1b", 996'392'064}};
  for (const auto& [name, count] : counts) EXPECT_EQ(Layout(preset_config(name)).parameter_count(), count) << name;
}

TEST(Config, UnknownPresetsAreErrors) {
  for (const char* name : {"", "pgdn", "pgdn-", "pgdn-7t", "-340m", "pgdm-340m", "340m"}) {
    EXPECT_THROW(preset_config(name), Error) << name;
  }
}

std::vector<std::string> tensors_of(const Config& config) {
  const Layout layout(config);
  std::vector<std::string> list;
  for (const Parameter& parameter : layout.parameters()) {
    list.push_back(parameter.name + " " + json(parameter.shape).dump());
  }
  return list;
}

TEST(Config, PresetsSurviveTheWayThroughText) {
  for (const std::string& name : preset_names()) {
    const Config preset = preset_config(name);
    const std::string text = config_text(preset, "bfloat16");
    const Config read = parse_config(text, name);
    EXPECT_EQ(read.model_type, preset.model_type) << name;
    EXPECT_EQ(read.row, preset.row) << name;
    EXPECT_EQ(options(read.spec), options(preset.spec)) << name;
    EXPECT_EQ(read.a_init_lower, preset.a_init_lower) << name;
    EXPECT_EQ(read.log_atk_scale_init, preset.log_atk_scale_init) << name;
    EXPECT_EQ(read.norm_eps, preset.norm_eps) << name;
    EXPECT_EQ(read.output_gate, preset.output_gate) << name;
    EXPECT_EQ(read.eos_token_id, preset.eos_token_id) << name;
    EXPECT_TRUE(tensors_of(read) == tensors_of(preset)) << name;
    EXPECT_EQ(config_text(read, "bfloat16"), text) << name;
    EXPECT_EQ(json::parse(text)["dtype"], "bfloat16") << name;
  }
}

// ---- every option survives

// All fields as text, so that a difference shows.
std::string fields_of(const Config& c) {
  json attention = json::array();
  for (const AttentionConfig& a : c.attention) {
    attention.push_back({a.layers, a.num_heads, a.num_kv_heads, a.qkv_bias, a.qk_norm, a.window, a.rope_theta});
  }
  const auto optional = [](const std::optional<int64_t>& value) { return value ? json(*value) : json(); };
  return json{{"model_type", c.model_type},
              {"row", c.row},
              {"spec", options(c.spec)},
              {"vocab_size", c.vocab_size},
              {"hidden_size", c.hidden_size},
              {"num_hidden_layers", c.num_hidden_layers},
              {"intermediate_size", c.intermediate_size},
              {"num_heads", c.num_heads},
              {"num_v_heads", c.num_v_heads},
              {"head_dim", c.head_dim},
              {"head_v_dim", c.head_v_dim},
              {"conv_size", c.conv_size},
              {"output_gate", static_cast<int>(c.output_gate)},
              {"allow_neg_eigval", c.allow_neg_eigval},
              {"use_l2warp", c.use_l2warp},
              {"tie_word_embeddings", c.tie_word_embeddings},
              {"norm_eps", c.norm_eps},
              {"initializer_range", c.initializer_range},
              {"a_init_lower", c.a_init_lower},
              {"log_atk_scale_init", c.log_atk_scale_init},
              {"attention", attention},
              {"bos_token_id", optional(c.bos_token_id)},
              {"eos_token_id", optional(c.eos_token_id)},
              {"max_position_embeddings", optional(c.max_position_embeddings)}}
      .dump(1);
}

// A model of a preset's type with every option that its type has drawn anew, most of them often.
Config drawn(const Config& preset, Rng& rng) {
  const auto below = [&](int64_t n) { return static_cast<int64_t>(rng.uniform() * static_cast<double>(n)); };
  const auto coin = [&] { return below(2) == 1; };
  const auto number = [&](double low, double high) { return low + (high - low) * rng.uniform(); };
  Config c = preset;
  const bool transformer = c.row.empty(), is_row = c.model_type == kRowModelType;
  const bool is_kda = c.output_gate == OutputGate::kSigmoidLowRank, is_delta = c.model_type == "delta_net";
  c.vocab_size = 1 + below(1000);
  c.num_heads = 1 + below(4);
  c.hidden_size = 2 * c.num_heads * (1 + below(20));
  c.num_hidden_layers = 3 + below(4);
  c.intermediate_size = 1 + below(99);
  c.norm_eps = number(0, 1);
  c.initializer_range = number(0, 10);
  c.tie_word_embeddings = coin();
  c.use_l2warp = coin();
  c.bos_token_id = coin() ? std::optional(below(c.vocab_size)) : std::nullopt;
  c.eos_token_id = coin() ? std::optional(below(c.vocab_size)) : std::nullopt;
  c.max_position_embeddings = coin() ? std::optional(1 + below(1 << 20)) : std::nullopt;
  const auto draw_attention = [&](AttentionConfig& a) {
    a.num_heads = transformer ? c.num_heads : (coin() ? 1 : c.num_heads);
    a.num_kv_heads = coin() ? 1 : a.num_heads;
    a.qkv_bias = coin();
    a.window = coin() ? 1 + below(5000) : 0;
    a.rope_theta = number(1, 1e6);
  };
  if (transformer) {
    c.attention.front().layers.clear();
    for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) c.attention.front().layers.push_back(layer);
    draw_attention(c.attention.front());
    c.attention.front().qk_norm = coin();
    return c;
  }
  for (int64_t layer = below(4); layer < 3; layer += 2) {
    draw_attention(c.attention.emplace_back());
    c.attention.back().layers = {layer};
  }
  c.head_dim = 1 + below(40);
  c.head_v_dim = 1 + below(40);
  c.num_v_heads = c.num_heads;
  c.conv_size = below(9);
  c.allow_neg_eigval = coin();
  c.a_init_lower = coin() ? number(0, 16) : c.a_init_lower;
  c.log_atk_scale_init = coin() ? number(-100, 100) : c.log_atk_scale_init;
  if (!is_kda) c.output_gate = std::array{OutputGate::kNone, OutputGate::kSilu, OutputGate::kSigmoid}[below(3)];
  if (c.model_type.starts_with("precond_") || is_row) {
    c.spec.x = number(1, 2);
    c.spec.eps = number(1e-30, 1);
  }
  if (is_row) {
    c.spec.l2norm = coin();
    c.spec.l2norm_eps = number(1e-12, 1);
    if (coin()) c.spec.scale = number(0, 2);
  }
  const bool one_to_one = shares_gates(c.spec);
  if (!one_to_one && !is_delta) c.num_v_heads = c.num_heads * (1 + below(3));
  return c;
}

TEST(Config, EveryOptionSurvivesTheWayThroughText) {
  Rng rng(1);
  for (const std::string& name : preset_names()) {
    if (!name.ends_with("-340m")) continue;  // sizes are drawn
    for (int i = 0; i < 20; ++i) {
      const Config config = drawn(preset_config(name), rng);
      validate(config, name);
      const std::string text = config_text(config, "float32");
      const Config read = parse_config(text, name);
      EXPECT_EQ(fields_of(read), fields_of(config)) << text;
      EXPECT_EQ(fields_of(parse_config(config_text(read, "float32"), name)), fields_of(config));
    }
  }
}

// One after the other: each choice of a row that another choice does not rule out.
TEST(Config, EveryChoiceOfARowSurvives) {
  int choices = 0;
  for (const Row& row : rows()) {
    Config config = row_config(row.name, "5m");
    config.model_type = kRowModelType;
    config.row = row.name;
    config.output_gate = OutputGate::kNone;
    config.spec = row.spec;
    config.spec.l2norm = true;
    for (const Row& other : rows()) {
      for (const auto& [key, value] : options(other.spec)) {
        Config changed = config;
        set_option(changed.spec, key, value);
        try {
          validate(changed.spec);
        } catch (const Error&) {
          continue;
        }
        ++choices;
        EXPECT_EQ(options(parse_config(config_text(changed, "float32"), "").spec), options(changed.spec))
            << row.name << " with " << key << " = " << value;
      }
    }
  }
  EXPECT_GT(choices, 1000);
}

TEST(Config, ARecurrenceSaysNoLongestContext) {
  for (const std::string& name : preset_names()) {
    const json text = json::parse(config_text(preset_config(name), "float32"));
    EXPECT_EQ(text.contains("max_position_embeddings"), name.starts_with("transformer")) << name;
  }
}

TEST(Config, TextKeepsFieldsThatItDoesNotUse) {
  json config = valid();
  config["made_by"] = "someone";
  config["torch_dtype"] = "float32";
  const json text = json::parse(config_text(parse_config(config.dump(), ""), "float16"));
  EXPECT_EQ(text["made_by"], "someone");
  EXPECT_EQ(text["dtype"], "float16");
  EXPECT_EQ(text["torch_dtype"], "float16");
}

// Sizes at the edge of what is allowed run: gradients, prefill and decoding agree with each other.
TEST(Config, SmallestSizesRun) {
  json single = valid();
  single.update({{"hidden_size", 2}, {"num_heads", 1}, {"head_dim", 1}, {"vocab_size", 1}, {"intermediate_size", 1}});
  json narrow = valid();
  narrow["conv_size"] = 1;
  const json models[] = {
      single, narrow, hybrid({{"layers", {1}}, {"num_heads", 2}, {"window_size", 1}}),
      // Layers of attention with different sizes, the smallest first.
      hybrid({{{"layers", {0}}, {"num_heads", 16}, {"num_kv_heads", 1}}, {{"layers", {1, 2}}, {"num_heads", 4}}})};
  for (const json& config : models) {
    SCOPED_TRACE(config.dump());
    Model model = Model::from_config(config.dump(), 1);
    const auto vocab = static_cast<std::size_t>(model.vocab_size());
    std::vector<int32_t> sequence;
    for (int32_t i = 0; i < 70; ++i) sequence.push_back(i * 7 % static_cast<int32_t>(vocab));
    const Packed batch({sequence});
    std::vector<float> logits(sequence.size() * vocab), step(vocab);
    model.logits(batch.ids, batch.offsets, logits.data());
    Session session = model.start();
    session.read({{std::vector<int32_t>(sequence.begin(), sequence.begin() + 60)}}, step.data());
    for (std::size_t t = 60; t < sequence.size(); ++t) session.read({{std::vector<int32_t>{sequence[t]}}}, step.data());
    EXPECT_LE(relative_error(step, {logits.end() - static_cast<std::ptrdiff_t>(vocab), logits.end()}), 1e-5);

    const double kept = model.loss_and_gradients(batch.ids, batch.next(), batch.offsets, false).mean();
    const std::vector<float> gradient(model.gradient("model.embeddings.weight").begin(),
                                      model.gradient("model.embeddings.weight").end());
    EXPECT_EQ(model.loss_and_gradients(batch.ids, batch.next(), batch.offsets, true).mean(), kept);
    const auto again = model.gradient("model.embeddings.weight");
    EXPECT_EQ(std::vector<float>(again.begin(), again.end()), gradient);
    EXPECT_NEAR(model.loss(batch.ids, batch.next(), batch.offsets).mean(), kept, 1e-5);
  }
}

}  // namespace
}  // namespace deltanet::test
