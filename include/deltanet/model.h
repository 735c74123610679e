#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deltanet/weight_type.h"

// Language models: checkpoints in and out, logits, gradients, generation.
//
// A batch is N sequences of token ids, one after the other in one array; offsets [N+1] say where each begins and where
// the last ends, so that sequences of different lengths need no padding.

namespace deltanet {

struct ModelOptions {
  WeightType weights = WeightType::kFloat32;  // how products are computed; a checkpoint of any type is converted
  int threads = 0;                            // 0: the default of the machine
};

// How the next token is chosen from the logits. The defaults choose the most probable one.
struct SamplerOptions {
  double temperature = 0.0;  // 0: always the most probable token
  int64_t top_k = 0;         // among the k most probable; 0: all
  double top_p = 1.0;        // among the most probable that together have this probability
  double min_p = 0.0;        // among those at least this times as probable as the most probable
  // Divides positive logits of tokens that the sequence has read or said before, multiplies negative ones.
  double repetition_penalty = 1.0;
  uint64_t seed = 0;
};

struct GenerateOptions {
  int64_t max_tokens = 128;
  SamplerOptions sampling = {};
  std::vector<int32_t> end_ids = {};  // a sequence ends after one of these
  // Of the tokenizer: ids from here on, which it could not turn into text, are never chosen. 0: all of the model's.
  int64_t vocab_size = 0;
};

struct GenerateStats {
  int64_t prompt_tokens = 0, tokens = 0;
  double prompt_seconds = 0, seconds = 0;
};

// How any number of sequences of any length go through a model: packed in passes, so that the memory does not depend on
// their lengths, and what several of them begin with is read once.
struct BatchOptions {
  int64_t tokens = 4096;                     // of a pass, about
  int64_t state_bytes = int64_t{512} << 20;  // what the states of sequences side by side may take
  int64_t sequences = 64;                    // of generation: side by side at most
  std::vector<bool> skip = {};               // by sequence: planned for, but not read, as by a call that was stopped
  std::function<void(int64_t, int64_t)> on_read =
      {};  // tokens that were read, of how many; what was shared counts once
};

// A sequence, and what should follow its tokens: targets[i] follows ids[i]; -100 where that is not asked.
struct ScoreRequest {
  std::vector<int32_t> ids, targets;
};

struct Scored {
  int64_t sequence;                   // of the requests
  std::span<const double> log_probs;  // of its targets that are not -100, in order
  std::span<const bool> greedy;       // whether each is the most probable token
};

struct ParameterInfo {
  std::string name;
  std::vector<int64_t> shape;
};

struct LossSum {
  double sum = 0;     // of -log p(target), natural logarithm
  int64_t count = 0;  // of targets
  double mean() const { return sum / static_cast<double>(count); }
};

struct SaveOptions {
  std::string dtype = "f32";                                   // f32, bf16 or f16
  int64_t max_shard_bytes = int64_t{50} * 1000 * 1000 * 1000;  // more than this is split over several files
  // A checksum of each tensor in the metadata of its file, for `deltanet info --check`. Without them the files are what
  // upstream writes, byte for byte.
  bool checksums = true;
};

class Session;
class TokenStream;

class Model {
 public:
  // A directory with config.json and model.safetensors (or shards with their index), as upstream writes them.
  static Model load(const std::string& directory, const ModelOptions& options = {});
  // Random weights. `preset` is ROW-SIZE, such as "pgdn-340m"; `config_json` the text of a config.json.
  static Model from_preset(std::string_view preset, uint64_t seed, const ModelOptions& options = {});
  static Model from_config(std::string_view config_json, uint64_t seed, const ModelOptions& options = {});

  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  std::string config_json() const;
  std::string model_type() const;
  int64_t vocab_size() const;
  int64_t parameter_count() const;
  WeightType weight_type() const;
  std::vector<int32_t> end_ids() const;  // of config.json; empty if it names none
  std::vector<ParameterInfo> parameters() const;
  // Values in row-major order, as float32 whatever they are stored as.
  std::vector<float> parameter(std::string_view name) const;
  void set_parameter(std::string_view name, std::span<const float> values);

  // out [tokens, vocab]: the logits after every token.
  void logits(std::span<const int32_t> ids, std::span<const int64_t> offsets, float* out);
  // targets[i] is what should follow ids[i]; -100 leaves a position out.
  LossSum loss(std::span<const int32_t> ids, std::span<const int32_t> targets, std::span<const int64_t> offsets);
  // log_prob[i] = log p(targets[i]); greedy[i]: it is the most probable token.
  void log_probs(std::span<const int32_t> ids, std::span<const int32_t> targets, std::span<const int64_t> offsets,
                 double* log_prob, bool* greedy);
  // log_probs of many sequences; on_scored gets each as soon as it is done, in any order.
  void score(std::span<const ScoreRequest> requests, const BatchOptions& options,
             const std::function<void(const Scored&)>& on_scored);
  // Continues many prompts. on_token(prompt, id) gets every new token; false ends that prompt's text. Prompt n is
  // sampled with seed + n.
  GenerateStats generate(std::span<const std::vector<int32_t>> prompts, const GenerateOptions& options,
                         const BatchOptions& batch, const std::function<bool(int64_t, int32_t)>& on_token);
  // Also computes the gradients of the mean loss; read them with gradient(). recompute: keep only the inputs of the
  // layers and compute the rest again, for long contexts. Needs float32 or bf16 weights.
  LossSum loss_and_gradients(std::span<const int32_t> ids, std::span<const int32_t> targets,
                             std::span<const int64_t> offsets, bool recompute = false);
  std::span<const float> gradient(std::string_view name) const;

  // Remembers nothing yet, for `sequences` sequences side by side.
  Session start(int64_t sequences = 1);
  Session load_session(const std::string& path);

  void save(const std::string& directory, const SaveOptions& options = {}) const;

 private:
  friend class Optimizer;
  friend class Session;
  friend struct ModelAccess;
  struct Impl;
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What the model remembers of some sequences, of constant size. The model must outlive it, and runs one call at a time.
class Session {
 public:
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  int64_t sequences() const;
  int64_t bytes() const;  // of the state

  // Reads more tokens of every sequence; out [sequences, vocab]: logits after the last of each. Prompts may be long:
  // memory stays bounded.
  void read(std::span<const std::vector<int32_t>> prompts, float* out);
  // Model::log_probs after what the sequences remember, which then includes these tokens.
  void log_probs(std::span<const int32_t> ids, std::span<const int32_t> targets, std::span<const int64_t> offsets,
                 double* log_prob, bool* greedy);
  // Reads the prompts and goes on. on_token(sequence, id) gets every new token; false ends that sequence. Tokens of one
  // step are chosen for all sequences before the first is told; an exception in on_token ends the call and leaves each
  // sequence after the last token that was chosen for it.
  GenerateStats generate(std::span<const std::vector<int32_t>> prompts, const GenerateOptions& options,
                         const std::function<bool(int64_t, int32_t)>& on_token);
  // The same tokens as generate(), computed when asked for; of a session with one sequence, which must outlive the
  // stream. A stream may be left at any token: the session goes on after it.
  TokenStream stream(std::span<const int32_t> prompt, const GenerateOptions& options);

  // A new session whose sequence i remembers what sequence from[i] of this one does: a prefix is read once, and any
  // number of continuations go on from it.
  Session copy(std::span<const int64_t> from) const;
  // As if the last token of each sequence had not been said, where generate or a stream chose it and the model has not
  // read it yet: what ends a text may come with the beginning of more.
  void drop_unread();
  // The whole state to a file, bit for bit; Model::load_session reads it back and refuses the state of another model.
  void save(const std::string& path) const;
  void reset();

 private:
  friend class Model;
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class TokenStream {
 public:
  TokenStream(TokenStream&&) noexcept;
  TokenStream& operator=(TokenStream&&) noexcept;
  ~TokenStream();

  std::optional<int32_t> next();  // nothing: an end token or max_tokens was reached

 private:
  friend class Session;
  struct Impl;
  explicit TokenStream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Names of the presets, ROW-SIZE.
std::vector<std::string> model_presets();

}  // namespace deltanet
