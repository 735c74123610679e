#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/config/config.h"
#include "train/adamw.h"
#include "train/schedule.h"

namespace deltanet {

// Everything that a training run depends on: the keys of a TOML file, of a recipe and of --set. The defaults are the
// paper's (340M parameters).
struct TrainConfig {
  // What is trained. `model` is a preset ("pgdn-340m") or the path of a config.json; a [model] table with the fields of
  // a config.json takes its place.
  std::string model;
  std::string model_table;   // text of the table; empty: there is none
  std::string model_fields;  // text of a table [model_fields]: fields of a config.json that the model gets on top
  std::string init_from;     // a checkpoint whose model and weights to start from, instead of `model` and random ones
  int64_t vocab_size = 0;    // instead of the model's; 0: the model's

  // On what.
  std::string data, eval_data;       // without eval_data the end of the data is held out
  std::string tokenizer;             // a path, or "bytes"; empty: that of the data
  bool document_boundaries = false;  // the state starts anew after every end of a document
  int64_t sequence_length = 2048;    // tokens
  int64_t batch_size = 256;          // sequences per step
  int64_t micro_batch = 0;           // sequences per pass; 0: as many as make 4096 tokens
  uint64_t seed = 0;

  // How.
  int64_t steps = 30000;
  double lr = 4e-4, min_lr_ratio = 0.1;
  int64_t warmup = 1024;
  std::string schedule = "cosine";
  double decay_part = 0.2;  // of wsd
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.01;
  double clip = 1.0;               // of the global norm; 0: none
  std::string precision = "bf16";  // of the products
  bool recompute = false;          // layers keep only their input
  int64_t max_bad_steps = 10;      // in a row, before training stops
  int64_t threads = 0;             // 0: all cores

  // What is kept of it.
  std::string out;
  int64_t log_every = 10;
  int64_t eval_every = 1000, eval_batches = 4;  // 0: never; a batch has batch_size sequences
  std::string eval_tasks;        // of `deltanet eval`, separated by commas: arc_easy,lambada; empty: none
  std::string eval_tasks_data;   // the folder of their files
  int64_t eval_tasks_every = 0;  // 0: with eval_every
  int64_t eval_tasks_limit = 0;  // only the first examples of each; 0: all
  int64_t checkpoint_every = 1000, keep_checkpoints = 3;
  bool tensorboard = true;

  Schedule schedule_of_steps() const;
  AdamWOptions adamw() const;
  int64_t steps_between_tasks() const { return eval_tasks_every > 0 ? eval_tasks_every : eval_every; }
  int64_t sequences_per_pass() const;  // micro_batch, or what 0 stands for
  Config model_config() const;         // throws Error when the model is not given or not valid
};

// Reads keys from the text of a TOML file over what is in `config`. An Error names the file, the key, what was given
// and what was expected; for an unknown key, the nearest known one.
void read_toml(std::string_view text, const std::string& file, TrainConfig& config);
void read_toml_file(const std::filesystem::path& path, TrainConfig& config);

// "key=value", as --set takes it; "model.field=value" goes to model_fields. Strings need no quotes.
void set_key(std::string_view assignment, TrainConfig& config);
void set_keys(std::vector<std::string> assignments, TrainConfig& config);  // all that are given together

// A recipe of configs/, which are part of the program: "340m", "tiny-5m", or with another row, "gdn-340m".
TrainConfig recipe(std::string_view name);
std::vector<std::string> recipe_names();

// Relations between keys, and that a model and an output folder are there. Ranges of single keys are checked as they
// are read.
void validate(const TrainConfig& config);

// All keys with their values, as read_toml takes them; `identity`: only those that a resumed run must share.
std::vector<std::pair<std::string, std::string>> key_values(const TrainConfig& config, bool identity = false);
// The whole config as a file, and the JSON of a TOML text.
std::string toml_text(const TrainConfig& config);
std::string toml_to_json(std::string_view text, const std::string& file);

}  // namespace deltanet
