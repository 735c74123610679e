#include "train/config_keys.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "base/edit_distance.h"
#include "base/json.h"
#include "deltanet/error.h"

namespace deltanet {
namespace {

constexpr double kMany = 1e15;  // steps, tokens: beyond any run, within the integers of a double

template <class T>
std::string number_text(T value) {
  char text[64];
  const auto end = std::to_chars(text, std::end(text), value).ptr;  // the shortest that reads back the same
  return {text, end};
}

std::vector<Key> make_keys() {
  using C = TrainConfig;
  return {
      // What a resumed run must share is marked. The model itself, the data and the learning rates of the steps that
      // are done are compared as such (run_identity.h, run_checkpoint.cc): paths may change, and steps be added.
      {"model", &C::model, false},
      {"init_from", &C::init_from, false},
      {"vocab_size", &C::vocab_size, false, 0, 1 << 24},
      {"data", &C::data, false},
      {"eval_data", &C::eval_data, false},
      {"tokenizer", &C::tokenizer, false},
      {"document_boundaries", &C::document_boundaries, true},
      {"sequence_length", &C::sequence_length, true, 1, 1 << 24},
      {"batch_size", &C::batch_size, true, 1, 1 << 24},
      {"micro_batch", &C::micro_batch, true, 0, 1 << 24},
      {"seed", &C::seed, true, 0, kMany},
      {"steps", &C::steps, false, 0, kMany},
      {"lr", &C::lr, true, 0, 1e3},
      {"min_lr_ratio", &C::min_lr_ratio, true, 0, 1},
      {"warmup", &C::warmup, true, 0, kMany},
      {"schedule", &C::schedule, true, 0, 0, {"cosine", "constant", "wsd"}},
      {"decay_part", &C::decay_part, true, 0, 1},
      {"beta1", &C::beta1, true, 0, 0.999999},
      {"beta2", &C::beta2, true, 0, 0.999999},
      {"eps", &C::eps, true, 1e-30, 1},
      {"weight_decay", &C::weight_decay, true, 0, 1e3},
      {"clip", &C::clip, true, 0, 1e9},
      {"precision", &C::precision, true, 0, 0, {"f32", "bf16"}},
      {"recompute", &C::recompute, false},
      {"max_bad_steps", &C::max_bad_steps, false, 1, kMany},
      {"threads", &C::threads, false, 0, 4096},
      {"out", &C::out, false},
      {"log_every", &C::log_every, false, 1, kMany},
      {"eval_every", &C::eval_every, false, 0, kMany},
      {"eval_batches", &C::eval_batches, true, 1, 1 << 24},  // decides what is held out
      {"eval_tasks", &C::eval_tasks, false},
      {"eval_tasks_data", &C::eval_tasks_data, false},
      {"eval_tasks_every", &C::eval_tasks_every, false, 0, kMany},
      {"eval_tasks_limit", &C::eval_tasks_limit, false, 0, kMany},
      {"checkpoint_every", &C::checkpoint_every, false, 0, kMany},
      {"keep_checkpoints", &C::keep_checkpoints, false, 1, kMany},
      {"tensorboard", &C::tensorboard, false},
  };
}

}  // namespace

const std::vector<Key>& config_keys() {
  static const std::vector<Key> keys = make_keys();
  return keys;
}

const Key& find_key(std::string_view name, const std::string& file) {
  const auto& keys = config_keys();
  const auto found = std::find_if(keys.begin(), keys.end(), [&](const Key& key) { return key.name == name; });
  if (found != keys.end()) return *found;
  std::vector<std::string_view> names;
  names.reserve(keys.size());
  for (const Key& key : keys) names.push_back(key.name);
  throw Error("[train] " + file + ": unknown key " + in_quotes(name) + "; " + suggestion(name, names));
}

std::string expected_text(const Key& key) {
  const bool is_double = std::holds_alternative<double TrainConfig::*>(key.place);
  const auto bound = [&](double value) {
    return is_double ? number_text(value) : number_text(static_cast<int64_t>(value));
  };
  const std::string range = " from " + bound(key.smallest) + " to " + bound(key.largest);
  struct Visitor {
    const Key& key;
    const std::string& range;
    std::string operator()(int64_t TrainConfig::*) const { return "an integer" + range; }
    std::string operator()(uint64_t TrainConfig::*) const { return "an integer" + range; }
    std::string operator()(double TrainConfig::*) const { return "a number" + range; }
    std::string operator()(bool TrainConfig::*) const { return "true or false"; }
    std::string operator()(std::string TrainConfig::*) const {
      if (key.allowed.empty()) return "a string";
      std::string text;
      for (std::size_t i = 0; i < key.allowed.size(); ++i) {
        text += (i == 0 ? "" : i + 1 == key.allowed.size() ? " or " : ", ") + std::string(key.allowed[i]);
      }
      return text;
    }
  };
  return std::visit(Visitor{key, range}, key.place);
}

std::string value_text(const Key& key, const TrainConfig& config) {
  struct Visitor {
    const TrainConfig& config;
    std::string operator()(int64_t TrainConfig::*place) const { return number_text(config.*place); }
    std::string operator()(uint64_t TrainConfig::*place) const { return number_text(config.*place); }
    std::string operator()(double TrainConfig::*place) const {
      std::string text = number_text(config.*place);
      return text.find_first_of(".e") == text.npos ? text + ".0" : text;  // TOML tells integers from floats
    }
    std::string operator()(bool TrainConfig::*place) const { return config.*place ? "true" : "false"; }
    std::string operator()(std::string TrainConfig::*place) const { return nlohmann::json(config.*place).dump(); }
  };
  return std::visit(Visitor{config}, key.place);
}

}  // namespace deltanet
