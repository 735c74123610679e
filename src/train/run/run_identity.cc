#include "train/run/run_identity.h"

#include <algorithm>
#include <set>

#include "base/hash.h"
#include "base/json.h"

namespace deltanet {
namespace {

std::string summary_of(const BatchSource* source) {
  if (!source) return "none";
  constexpr int64_t kProbes = 16;
  const int64_t samples = source->samples_per_epoch(), probes = std::min(kProbes, samples);
  uint64_t hash = kEmptyHash;
  Batch batch;
  for (int64_t i = 0; i < probes; ++i) {
    source->fill(samples * i / probes, 1, batch);
    hash = hash_bytes(batch.ids.data(), batch.ids.size() * sizeof batch.ids[0], hash);
    hash = hash_bytes(batch.targets.data(), batch.targets.size() * sizeof batch.targets[0], hash);
  }
  return std::to_string(samples) + " sequences with the hash " + std::to_string(hash);
}

}  // namespace

RunIdentity config_identity(const TrainConfig& config) {
  RunIdentity identity;
  for (const auto& [key, value] : key_values(config, /*identity=*/true)) identity[key] = value;
  Config made = config.model_config();
  made.source.clear();  // only what the model depends on, defaults included
  const nlohmann::json model = parse_json(config_text(made, "float32"), "model");
  for (const auto& [field, value] : model.items()) identity["model." + field] = value.dump();
  return identity;
}

RunIdentity data_identity(const TrainingData& data) {
  return {{"data", summary_of(data.train.get())}, {"held-out data", summary_of(data.held_out.get())}};
}

std::string differences(const RunIdentity& before, const RunIdentity& now) {
  std::set<std::string> names;
  for (const auto* identity : {&before, &now}) {
    for (const auto& [name, value] : *identity) names.insert(name);
  }
  std::string text;
  for (const std::string& name : names) {
    const auto value_in = [&](const RunIdentity& identity) {
      const auto found = identity.find(name);
      return found == identity.end() ? "missing" : found->second;
    };
    if (value_in(before) == value_in(now)) continue;
    text += (text.empty() ? "" : ", ") + name + " was " + value_in(before) + " and is " + value_in(now);
  }
  return text;
}

}  // namespace deltanet
