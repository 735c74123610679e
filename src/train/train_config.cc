#include "train/train_config.h"

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "data/unicode/utf8.h"
#include "deltanet/error.h"
#include "train/config_keys.h"
#include "train/recipes.h"

namespace deltanet {

namespace fs = std::filesystem;

Schedule TrainConfig::schedule_of_steps() const {
  return {.kind = parse_schedule(schedule),
          .peak = lr,
          .end_ratio = min_lr_ratio,
          .warmup = warmup,
          .steps = steps,
          .decay_part = decay_part};
}

AdamWOptions TrainConfig::adamw() const {
  return {.beta1 = beta1, .beta2 = beta2, .eps = eps, .weight_decay = weight_decay};
}

int64_t TrainConfig::sequences_per_pass() const {
  constexpr int64_t kTokens = 4096;  // products are as fast as they get with this many rows
  const int64_t wanted = micro_batch > 0 ? micro_batch : std::max<int64_t>(1, kTokens / sequence_length);
  return std::min(wanted, batch_size);
}

Config TrainConfig::model_config() const {
  Config made;
  if (!init_from.empty()) {
    made = load_config((fs::path(init_from) / "config.json").string());
  } else if (!model_table.empty()) {
    made = parse_config(toml_to_json(model_table, "[model]"), "[model]", OtherFields::kRefused);
  } else if (model.ends_with(".json")) {
    made = load_config(model);
  } else if (!model.empty() && fs::exists(fs::path(model) / "config.json")) {
    made = load_config((fs::path(model) / "config.json").string());
  } else if (!model.empty()) {
    made = preset_config(model);
  } else {
    throw Error(
        "[train] model: not given; expected a preset such as \"pgdn-340m\", the path of a config.json, or a "
        "[model] table");
  }
  if (!model_fields.empty() || (vocab_size > 0 && vocab_size != made.vocab_size)) {
    // Through the text of config.json, so that everything that depends on it is checked again. What `made` was read
    // from may have fields that are none of ours; those that are given here may not.
    auto given = parse_json(toml_to_json(model_fields, "[model_fields]"), "[model_fields]");
    if (vocab_size > 0) given["vocab_size"] = vocab_size;
    const std::string source = std::exchange(made.source, "");
    auto json = parse_json(config_text(made, "float32"), "model");
    json.merge_patch(given);
    for (const char* id : {"bos_token_id", "eos_token_id"}) {
      if (json[id].is_number() && json[id] >= json["vocab_size"]) json[id] = given[id] = nullptr;
    }
    made = parse_config(json.dump(), "model", OtherFields::kRefused);
    if (!source.empty()) {
      auto text = parse_json(source, "model");
      text.merge_patch(given);
      made.source = text.dump();
    }
  }
  return made;
}

TrainConfig recipe(std::string_view name) {
  for (const Recipe& one : recipes()) {
    const bool exact = name == one.name;
    std::string ending = "-";
    ending += one.name;
    if (!exact && !name.ends_with(ending)) continue;
    TrainConfig config;
    read_toml(one.toml, "recipe " + std::string(one.name), config);
    if (!exact) {  // the same with another row of the table
      const std::string_view row = name.substr(0, name.size() - ending.size());
      config.model = std::string(row) + config.model.substr(config.model.rfind('-'));
      config.model_config();  // the row must exist
    }
    return config;
  }
  std::string known;
  for (const std::string& one : recipe_names()) known += (known.empty() ? "" : ", ") + one;
  throw Error("[train] preset: given " + in_quotes(name) + "; expected one of " + known +
              ", or one of them with a row of the table in front, such as gdn-340m");
}

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const Recipe& one : recipes()) names.emplace_back(one.name);
  return names;
}

void validate(const TrainConfig& config) {
  if (!config.init_from.empty() && !(config.model.empty() && config.model_table.empty())) {
    throw Error("[train] model: given " + (config.model.empty() ? "as a table" : in_quotes(config.model)) +
                " beside init_from = " + in_quotes(config.init_from) +
                ", which brings its own model; expected one of the two");
  }
  config.model_config();
  if (config.out.empty()) throw Error("[train] out: not given; expected the folder of the run");
  if (config.steps < 1) throw Error("[train] steps: given 0; expected 1 or more");
  int64_t tokens = 0;
  if (__builtin_mul_overflow(config.steps, config.batch_size * config.sequence_length, &tokens)) {
    throw Error("[train] steps: given " + std::to_string(config.steps) + " of " + std::to_string(config.batch_size) +
                " x " + std::to_string(config.sequence_length) + " tokens; expected fewer than 2^63 tokens in all");
  }
  for (const Key& key : config_keys()) {
    const auto* place = std::get_if<std::string TrainConfig::*>(&key.place);
    if (place && !data::is_valid_utf8(config.**place)) {
      throw Error("[train] " + std::string(key.name) + ": given text that is not UTF-8; expected UTF-8, as in TOML");
    }
  }
}

std::vector<std::pair<std::string, std::string>> key_values(const TrainConfig& config, bool identity) {
  std::vector<std::pair<std::string, std::string>> values;
  for (const Key& key : config_keys()) {
    if (!identity || key.identity) values.emplace_back(key.name, value_text(key, config));
  }
  return values;
}

}  // namespace deltanet
