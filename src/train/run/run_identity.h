#pragma once

#include <map>
#include <string>

#include "train/run/training_data.h"

namespace deltanet {

// What a run must share with the one that it goes on from, by name: keys of the config, fields of the model, and the
// data: not the paths of them, which may change.
using RunIdentity = std::map<std::string, std::string>;

RunIdentity config_identity(const TrainConfig& config);
// How many samples there are, and a hash of some of them: cheap for any corpus, and other data, another tokenizer or
// another split do not go unnoticed.
RunIdentity data_identity(const TrainingData& data);

// "lr was 0.01 and is 0.5, ..."; empty: they are the same.
std::string differences(const RunIdentity& before, const RunIdentity& now);

}  // namespace deltanet
