// TOML in and out. The only file that sees the parser.

#include <algorithm>
#include <sstream>

#include "base/file.h"
#include "base/json.h"
#include "data/unicode/utf8.h"
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
    // Large integers, which are no doubles, are not converted by value<double>().
    const auto integer = value.value_exact<int64_t>();
    config.*place = checked(integer ? static_cast<double>(*integer) : *value.value_exact<double>());
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

// Is it TOML at all? --set takes values from people, who are told what was expected instead of what the parser missed.
bool is_toml(const std::string& line) {
  try {
    [[maybe_unused]] const toml::table parsed = toml::parse(line);
    return true;
  } catch (const toml::parse_error&) {
    return false;
  }
}

void merge(toml::table& into, const toml::table& from) {
  for (const auto& [name, node] : from) {
    toml::table* inner = into[name].as_table();
    if (inner && node.is_table()) {
      merge(*inner, *node.as_table());
    } else {
      into.insert_or_assign(name, node);
    }
  }
}

std::string text_of(const toml::table& table) {
  std::ostringstream text;
  text << toml::toml_formatter(table);
  return text.str();
}

void add_model_field(const std::string& field, const std::string& value, TrainConfig& config) {
  const bool is_plain = is_toml("field = " + value);
  if (field.empty() || field.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789.") != field.npos ||
      value.find('\n') != value.npos || !data::is_valid_utf8(value)) {
    throw Error("[train] --set: given " + in_quotes("model." + field) +
                "; expected model.FIELD=value, with a field of config.json and one line");
  }
  toml::table fields = parse(config.model_fields, "[model_fields]");
  const toml::table added =
      parse(field + " = " + (is_plain ? value : nlohmann::json(value).dump()), "--set model." + field);
  merge(fields, added);  // the last one of a name counts
  config.model_fields = text_of(fields);
}

}  // namespace

void read_toml(std::string_view text, const std::string& file, TrainConfig& config) {
  const toml::table table = parse(text, file);
  for (const auto& [name, value] : table) {
    const bool is_model = name.str() == "model", is_fields = name.str() == "model_fields";
    if (value.is_table() && (is_model || is_fields)) {
      (is_model ? config.model_table : config.model_fields) = text_of(*value.as_table());
      continue;
    }
    const Key& key = find_key(name.str(), file);
    std::visit(Store{key, value, file, config}, key.place);
    if (key.name == "model") config.model_table.clear();  // the last one given counts
  }
  // A checkpoint takes the place of a model from elsewhere (a recipe), but not of one that is given beside it.
  if (table["init_from"].value_or(std::string()).empty()) return;
  if (table["model"].is_table()) {
    config.model.clear();
  } else if (!table["model"]) {
    config.model.clear();
    config.model_table.clear();
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
  const std::string_view given = trimmed(assignment.substr(0, equals));
  std::string value(trimmed(assignment.substr(equals + 1)));
  if (constexpr std::string_view kModel = "model."; given.starts_with(kModel)) {
    add_model_field(std::string(given.substr(kModel.size())), value, config);
    return;
  }
  const Key& key = find_key(given, "--set");
  const bool is_text = std::holds_alternative<std::string TrainConfig::*>(key.place);
  const std::string name(key.name);
  if (!data::is_valid_utf8(value)) throw Error("[train] --set: " + name + ": expected UTF-8");
  if (value.find('\n') != value.npos) throw Error("[train] --set: " + name + ": expected one line");
  if (is_text && !value.starts_with('"')) value = nlohmann::json(value).dump();
  const std::string line = name + " = " + value;
  if (!is_text && !is_toml(line)) {
    throw Error("[train] --set: " + name + ": given " + in_quotes(value) + "; expected " + expected_text(key));
  }
  read_toml(line, "--set", config);
}

void set_keys(std::vector<std::string> assignments, TrainConfig& config) {
  // The checkpoint first: it takes the place of the recipe's model, but not of one that is set, before or after it.
  std::stable_partition(assignments.begin(), assignments.end(),
                        [](const std::string& one) { return one.substr(0, one.find_first_of(" =")) == "init_from"; });
  for (const std::string& assignment : assignments) set_key(assignment, config);
}

std::string toml_text(const TrainConfig& config) {
  std::string text;
  for (const auto& [name, value] : key_values(config)) {
    if (name != "model" || config.model_table.empty()) text.append(name).append(" = ").append(value).append("\n");
  }
  const auto add_table = [&](const char* name, const std::string& table) {
    if (!table.empty()) text.append("\n").append(text_of(toml::table{{name, parse(table, name)}})).append("\n");
  };
  add_table("model_fields", config.model_fields);
  add_table("model", config.model_table);
  return text;
}

std::string toml_to_json(std::string_view text, const std::string& file) {
  std::ostringstream json;
  json << toml::json_formatter(parse(text, file));
  return json.str();
}

}  // namespace deltanet
