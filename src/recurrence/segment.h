#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "recurrence/chunk.h"

// Preparing several consecutive chunks of one key head, on several threads if there are any to spare.

namespace deltanet {

// One chunk: per value head of the group, what the streams over the value columns need.
struct ChunkRecord {
  KeyChunk key;  // filled for the backward pass only
  std::vector<Gates> gates;
  std::vector<Operands> ops;
};

// The engines of the threads that share a key head. Lane i serves the chunks i, i + lanes, ...
using Cores = std::vector<std::unique_ptr<ChunkCore>>;
Cores make_cores(const Problem& p, int threads, Arena& arena);

// Runs body(lane, chunk) for all chunks.
void for_chunks(int64_t lanes, int64_t chunks, const std::function<void(int64_t lane, int64_t chunk)>& body);

class SegmentPrepare {
 public:
  SegmentPrepare(const Problem& p, int64_t key_head, Purpose purpose, const Cores& cores, Arena& arena);

  ChunkRecord make_record(Arena& arena) const;
  Prepare& prepare() { return *prepares_[0]; }

  // Fills records[0 .. chunks) from the tokens of span_of(0 .. chunks) and advances the state over them.
  void run(const std::function<Span(int64_t)>& span_of, int64_t chunks, KeyState& state,
           std::vector<ChunkRecord>& records);

 private:
  const Problem& p_;
  const int64_t key_head_;
  const Purpose purpose_;
  const Cores& cores_;
  std::vector<std::unique_ptr<Prepare>> prepares_;  // one per lane
  std::vector<KeyChunk> scratch_;                   // one per lane
  std::vector<KeyState> starts_;                    // state before each chunk, where lanes need it
  Arena& arena_;
};

}  // namespace deltanet
