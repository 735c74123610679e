// TOML in and out. The only file that sees the parser.

#include <algorithm>
#include <sstream>

#include "base/file.h"
#include "base/json.h"
#include "deltanet/error.h"
#include "train/config_keys.h"
#include "train/train_config.h"

#define TOML_EXCEPTIONS 1
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

namespace deltanet {
namespace {

[[noreturn]] void fail(const std::string& file, const Key& key, const toml::node& value) {
  std::ostringstream given;
  value.visit([&](const auto& node) { given << node; });
  throw Error("[train] " + file + ": " + std::string(key.name) + ": given " + given.str() + "; expected " +
              expected_text(key));
}

// Stores a value of the file where the table says; anything but the type and range of the key is an Error.
struct Store {
  const Key& key;
  const toml::node& value;
  const std::string& file;
  TrainConfig& config;

  double checked(double number) const {
    if (!(number >= key.smallest && number <= key.largest)) fail(file, key, value);
    return number;
  }
  int64_t integer() const {
    const auto number = value.value_exact<int64_t>();
    if (!number) fail(file, key, value);
    checked(static_cast<double>(*number));
    return *number;
  }
  void operator()(int64_t TrainConfig::*place) const { config.*place = integer(); }
  void operator()(uint64_t TrainConfig::*place) const { config.*place = static_cast<uint64_t>(integer()); }
  void operator()(double TrainConfig::*place) const {
    if (!value.is_number()) fail(file, key, value);
    config.*place = checked(*value.value<double>());
  }
  void operator()(bool TrainConfig::*place) const {
    const auto flag = value.value_exact<bool>();
    if (!flag) fail(file, key, value);
    config.*place = *flag;
  }
  void operator()(std::string TrainConfig::*place) const {
    const auto text = value.value_exact<std::string>();
    if (!text) fail(file, key, value);
    if (!key.allowed.empty() && std::find(key.allowed.begin(), key.allowed.end(), *text) == key.allowed.end()) {
      fail(file, key, value);
    }
    config.*place = *text;
  }
};

toml::table parse(std::string_view text, const std::string& file) {
  try {
    return toml::parse(text, std::string_view(file));
  } catch (const toml::parse_error& error) {
    const auto at = error.source().begin;
    throw Error("[train] " + file + ": line " + std::to_string(at.line) + ", column " + std::to_string(at.column) +
                ": " + std::string(error.description()));
  }
}

}  // namespace

void read_toml(std::string_view text, const std::string& file, TrainConfig& config) {
  const toml::table table = parse(text, file);
  for (const auto& [name, value] : table) {
    if (name.str() == "model" && value.is_table()) {
      std::ostringstream model;
      model << toml::toml_formatter(*value.as_table());
      config.model_table = model.str();
      continue;
    }
    const Key& key = find_key(name.str(), file);
    std::visit(Store{key, value, file, config}, key.place);
    if (key.name == "model") config.model_table.clear();  // the last one given counts
  }
}

void read_toml_file(const std::filesystem::path& path, TrainConfig& config) {
  read_toml(read_file(path, int64_t{1} << 20), path.string(), config);
}

void set_key(std::string_view assignment, TrainConfig& config) {
  const std::size_t equals = assignment.find('=');
  if (equals == assignment.npos || equals == 0) {
    throw Error("[train] set: given " + in_quotes(assignment) + "; expected key=value");
  }
  const auto trimmed = [](std::string_view text) {
    const std::size_t begin = text.find_first_not_of(' ');
    return begin == text.npos ? std::string_view() : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
  };
  const Key& key = find_key(trimmed(assignment.substr(0, equals)), "--set");
  std::string value(trimmed(assignment.substr(equals + 1)));
  const bool is_text = std::holds_alternative<std::string TrainConfig::*>(key.place);
  if (is_text && !value.starts_with('"')) value = nlohmann::json(value).dump();
  if (value.find('\n') != value.npos) throw Error("[train] --set: " + std::string(key.name) + ": expected one line");
  read_toml(std::string(key.name) + " = " + value, "--set", config);
}

std::string toml_text(const TrainConfig& config) {
  std::string text;
  for (const auto& [name, value] : key_values(config)) {
    if (name != "model" || config.model_table.empty()) text += name + " = " + value + "\n";
  }
  return config.model_table.empty() ? text : text + "\n[model]\n" + config.model_table + "\n";
}

std::string toml_to_json(std::string_view text, const std::string& file) {
  std::ostringstream json;
  json << toml::json_formatter(parse(text, file));
  return json.str();
}

}  // namespace deltanet
