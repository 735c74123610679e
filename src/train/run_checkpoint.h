#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "train/trainer.h"

// Checkpoints of a run, in its folder:
//   step-N/   a model directory as Model::load and transformers read it, and trainer.safetensors with the moments and
//             the state of the run
//   last      the number N to resume from
//   best      the number N with the smallest held-out loss
// A directory gets its name when everything in it is on disk, and `last` names it after that: a crash at any moment
// leaves `last` with a complete checkpoint.

namespace deltanet {

// The step that `last` or `best` names; nothing if there is no such file. Throws Error if it is damaged.
std::optional<int64_t> named_step(const std::filesystem::path& out, const char* name);
std::filesystem::path step_directory(const std::filesystem::path& out, int64_t step);

// Writes step-N of the trainer's step, renews `last`, and `best` if this is the best step; removes all but the newest
// keep_checkpoints and the best. All processes call it. An Error, such as a full disk, leaves the older ones.
void save_run_checkpoint(const std::filesystem::path& out, Trainer& trainer);

// Restores the checkpoint that `last` names. Throws Error where it is damaged or belongs to another config, naming what
// differs. Leftovers of a crash are removed.
void load_run_checkpoint(const std::filesystem::path& out, Trainer& trainer);

}  // namespace deltanet
