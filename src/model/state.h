#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/layout.h"
#include "nn/attention/attention.h"

namespace deltanet {

// What one layer carries from token to token, for N sequences.
struct LayerState {
  std::vector<float> S, A, P, G;  // of the recurrence: [N,U,K,V], [N,H,K], [N,H,K,K] x2; empty where it has none
  std::vector<float> conv;        // [N,W-1,C]: the last inputs of the convolution
  nn::KvCache cache;              // attention layers
};

// The memory of a model between calls: everything that the next token of N sequences depends on. Its size does not grow
// with the number of tokens, except in layers of softmax attention without a window.
class State {
 public:
  State(const Layout& layout, int64_t sequences);

  int64_t sequences() const { return sequences_; }
  bool fresh() const { return fresh_; }  // no token seen yet
  std::vector<LayerState>& layers() { return layers_; }
  const std::vector<LayerState>& layers() const { return layers_; }

  void reset();                    // forgets everything
  void resize(int64_t sequences);  // the same with room for another number of sequences; keeps its memory
  // Puts sequence `source` of another state of the same model in the place of sequence `target`.
  void copy_sequence(const State& from, int64_t source, int64_t target);
  // All of them: sequence i becomes what sources[i] of the other state is.
  void copy_sequences(const State& from, std::span<const int64_t> sources, int threads);
  int64_t bytes() const;

  // Tokens of each sequence that the model has not seen yet: what it said last, for example. They come first when the
  // sequence goes on, and are saved with it.
  std::vector<std::vector<int32_t>> pending;

  // A pass has read these ids: ids [offsets[n], offsets[n+1]) are of sequence n.
  void note(std::span<const int32_t> ids, std::span<const int64_t> offsets);
  // Every id that sequence n has read, for a repetition penalty; each once.
  std::vector<int32_t> ids_read(int64_t n) const;

  // Bit for bit to a file and back. load() throws Error if the file belongs to another model or is damaged.
  void save(const std::string& path, uint64_t model_fingerprint) const;
  static State load(const std::string& path, const Layout& layout, uint64_t model_fingerprint);

 private:
  friend class StateBefore;

  void copy_contents(const State& from, int64_t source, int64_t target);

  int64_t sequences_ = 0;
  bool fresh_ = true;
  std::vector<LayerState> layers_;
  std::vector<std::vector<bool>> read_;  // by sequence and id: was it read?
};

// Puts a state back as it was where a call that reads more is left early. Costs a copy, unless the state is fresh, but
// not of the keys and values of attention without a window: tokens that come to them are taken off again.
class StateBefore {
 public:
  explicit StateBefore(State& state);
  ~StateBefore();
  StateBefore(const StateBefore&) = delete;
  StateBefore& operator=(const StateBefore&) = delete;

  void call_is_done() { state_ = nullptr; }

 private:
  State* state_;
  std::optional<State> copy_;                  // nothing: it was fresh
  std::vector<std::vector<int64_t>> lengths_;  // by layer and sequence, of caches that the copy lacks
};

}  // namespace deltanet
