#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "train/run/run_identity.h"
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
// The step that a run goes on from: the one that `last` names, or the newest where a crash came before it was written.
std::optional<int64_t> step_to_resume(const std::filesystem::path& out);
// Why it is not the one that `last` names, for people; empty: it is. Throws Error where `last` names a step and there
// is none at all: whoever asks for more of that run does not want a new one.
std::string why_another_step(const std::filesystem::path& out);
int64_t count_checkpoints(const std::filesystem::path& out);

// Writes step-N of the trainer's step, renews `last`, and `best` if this is the best step; removes all but the newest
// keep_checkpoints and the best. All processes call it. An Error, such as a full disk, leaves the older ones.
void save_run_checkpoint(const std::filesystem::path& out, Trainer& trainer, const RunIdentity& identity);

// Restores the checkpoint of step_to_resume(). Throws Error where it is damaged or belongs to a run of another
// identity, naming what differs; `steps` may differ as long as the learning rates of the steps that are done do not.
void load_run_checkpoint(const std::filesystem::path& out, Trainer& trainer, const RunIdentity& identity);

// After a crash at any moment, or after `last` was set back: leaves the folder as it was when `state` was saved. What
// is not complete or newer is removed, `last` and `best` name their steps again.
void mend_run_folder(const std::filesystem::path& out, const TrainState& state);

// Of all weights: tells whether processes hold the same ones.
uint64_t weights_checksum(Trainer& trainer);

}  // namespace deltanet
