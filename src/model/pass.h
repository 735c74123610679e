#pragma once

#include <cstdint>
#include <span>

namespace deltanet {

// What a forward or backward pass runs over: the tokens of N sequences one after the other, [offsets[i], offsets[i+1])
// those of sequence i.
struct Pass {
  std::span<const int64_t> offsets;  // [N+1], from 0 to the number of tokens
  int threads = 0;

  int64_t tokens() const { return offsets.back(); }
  int64_t sequences() const { return static_cast<int64_t>(offsets.size()) - 1; }
};

// What a set of buffers holds.
enum class Holds {
  kValues,     // of an inference
  kTape,       // values, and what only the backward pass needs
  kGradients,  // of values, and of the parameters that the mixer computes as a whole
};

}  // namespace deltanet
