#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "deltanet/model.h"
#include "model/weights.h"

namespace deltanet {

// Writes a model as a directory that Model::load and transformers read: config.json, the weights, and the files in
// `others` by name.
void save_weights(const Weights& weights, const std::filesystem::path& directory, const SaveOptions& options,
                  std::map<std::string, std::string> others, int threads);

}  // namespace deltanet
