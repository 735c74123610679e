#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "recurrence/reference.h"

namespace deltanet::test {

// The state of the reference (recurrence/reference.h) as a chunkwise form has it: the entries at the start of a chunk
// and the writes since then, which every read adds up anew and which become entries at the end of the chunk.
template <class T>
class ChunkedState {
 public:
  using Vector = std::vector<T>;

  ChunkedState(Vector entries, std::size_t rows) : start_(std::move(entries), rows), decay_(rows, T(1.0)) {}

  void decay(const Vector& alpha) {
    decays_ = true;
    multiply(decay_, alpha);
    for (Vector& key : keys_) multiply(key, alpha);
  }
  Vector read(const Vector& key) {
    token_wrote_ = false;
    Vector decayed = key;
    if (decays_) multiply(decayed, decay_);
    Vector out = start_.read(decayed);
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      const T weight = reference::dot(key, keys_[i]);
      for (std::size_t j = 0; j < out.size(); ++j) out[j] += weight * values_[i][j];
    }
    return out;
  }
  void write(const Vector& key, const Vector& value) {
    if (!std::exchange(token_wrote_, true) && ++tokens_ > kTokens) end_chunk();  // some tokens write twice
    keys_.push_back(key);
    values_.push_back(value);
  }
  Vector entries() const {
    ChunkedState last = *this;
    last.end_chunk();
    return last.start_.entries();
  }

 private:
  static constexpr int kTokens = 16;

  static void multiply(Vector& x, const Vector& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = x[i] * y[i];
  }
  void end_chunk() {
    if (decays_) start_.decay(decay_);
    decay_.assign(decay_.size(), T(1.0));
    for (std::size_t i = 0; i < keys_.size(); ++i) start_.write(keys_[i], values_[i]);
    keys_.clear();
    values_.clear();
    tokens_ = 1;
  }

  reference::DenseState<T> start_;
  bool decays_ = false, token_wrote_ = false;
  int tokens_ = 0;
  Vector decay_;                       // since the start of the chunk
  std::vector<Vector> keys_, values_;  // written since then, the keys with the decay behind them
};

}  // namespace deltanet::test
