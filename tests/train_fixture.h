#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "train/batch_source.h"
#include "train/run/run_checkpoint.h"
#include "train/train_config.h"
#include "train/trainer.h"

namespace deltanet::test {

// A model that trains in milliseconds.
inline TrainConfig tiny_config() {
  TrainConfig config;
  read_toml(
      "steps = 20\nsequence_length = 32\nbatch_size = 4\nlr = 1e-2\nwarmup = 5\nprecision = \"f32\"\nthreads = 1\n"
      "eval_batches = 1\n[model]\nmodel_type = \"dgps\"\nrow = \"pgdn\"\nhidden_size = 64\nnum_hidden_layers = 2\n"
      "num_heads = 2\nhead_dim = 32\nintermediate_size = 64\nvocab_size = 64\n",
      "tiny", config);
  return config;
}

// Sequences in which the next token follows from those before it, different for every sample number below `period`.
class PatternSource final : public BatchSource {
 public:
  PatternSource(int64_t sequence_length, int64_t period) : length_(sequence_length), period_(period) {}

  void fill(int64_t first, int64_t count, Batch& out) const override {
    out = {};
    out.offsets.push_back(0);
    for (int64_t i = first; i < first + count; ++i) {
      const int64_t sample = i % period_;
      for (int64_t t = 0; t < length_; ++t) {
        out.ids.push_back(token(sample, t));
        out.targets.push_back(token(sample, t + 1));
      }
      out.offsets.push_back(static_cast<int64_t>(out.ids.size()));
    }
  }
  int64_t samples_per_epoch() const override { return period_; }

 private:
  static int32_t token(int64_t sample, int64_t t) {
    return static_cast<int32_t>((sample * 7 + t * (sample % 5 + 1) * 3 + t / 7) % 64);
  }
  int64_t length_, period_;
};

inline std::string exact(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

// A trainer of its own, from random weights on.
struct TrainedRun {
  explicit TrainedRun(const TrainConfig& config) : processes(single_process()), trainer(config, *processes) {
    trainer.initialize();
  }
  std::vector<std::string> steps(int count, const BatchSource& data) {
    std::vector<std::string> losses;
    for (int i = 0; i < count; ++i) losses.push_back(exact(trainer.step(data).loss));
    return losses;
  }
  void save(const std::filesystem::path& out) { save_run_checkpoint(out, trainer, config_identity(trainer.config())); }
  void load(const std::filesystem::path& out) { load_run_checkpoint(out, trainer, config_identity(trainer.config())); }

  std::unique_ptr<Communicator> processes;
  Trainer trainer;
};

}  // namespace deltanet::test
