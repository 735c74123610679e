#pragma once

#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "train/train_config.h"

// The table of keys behind TrainConfig: reading, writing, checking and comparing all go through it.

namespace deltanet {

using Place = std::variant<int64_t TrainConfig::*, uint64_t TrainConfig::*, double TrainConfig::*, bool TrainConfig::*,
                           std::string TrainConfig::*>;

struct Key {
  std::string_view name;
  Place place;
  bool identity;                               // a resumed run must have the same value
  double smallest = 0, largest = 0;            // of numbers
  std::vector<std::string_view> allowed = {};  // of strings; empty: any
};

const std::vector<Key>& config_keys();
const Key& find_key(std::string_view name, const std::string& file);  // throws Error that suggests the nearest

// "an integer from 1 to 100", "f32 or bf16"
std::string expected_text(const Key& key);
std::string value_text(const Key& key, const TrainConfig& config);  // as TOML writes it

}  // namespace deltanet
