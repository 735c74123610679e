#include "recurrence/segment.h"

#include <algorithm>

#include "base/parallel.h"

namespace deltanet {

Cores make_cores(const Problem& p, int threads, Arena& arena) {
  // RLS and MesaNet carry a matrix through every token; their keys are prepared in order.
  const int lanes = p.has_matrix() ? 1 : threads;
  Cores cores;
  for (int i = 0; i < lanes; ++i) cores.push_back(std::make_unique<ChunkCore>(p, arena));
  return cores;
}

void for_chunks(int64_t lanes, int64_t chunks, const std::function<void(int64_t lane, int64_t chunk)>& body) {
  parallel_for(static_cast<int>(lanes), lanes, [&](int64_t lane) {
    for (int64_t c = lane; c < chunks; c += lanes) body(lane, c);
  });
}

SegmentPrepare::SegmentPrepare(const Problem& p, int64_t key_head, Purpose purpose, const Cores& cores, Arena& arena)
    : p_(p), key_head_(key_head), purpose_(purpose), cores_(cores), arena_(arena) {
  for (size_t lane = 0; lane < cores.size(); ++lane) {
    prepares_.push_back(std::make_unique<Prepare>(p, key_head, purpose, arena));
    if (purpose != Purpose::kBackward || cores.size() > 1) scratch_.push_back(prepares_.back()->make_chunk(arena));
  }
}

ChunkRecord SegmentPrepare::make_record(Arena& arena) const {
  ChunkRecord record;
  if (purpose_ == Purpose::kBackward) record.key = prepares_[0]->make_chunk(arena);
  for (int64_t v = 0; v < p_.group; ++v) {
    record.gates.push_back(prepares_[0]->make_gates(arena));
    record.ops.push_back(cores_[0]->make_operands(arena));
  }
  return record;
}

void SegmentPrepare::run(const std::function<Span(int64_t)>& span_of, int64_t chunks, KeyState& state,
                         std::vector<ChunkRecord>& records) {
  const int64_t lanes = static_cast<int64_t>(cores_.size());
  const bool starts = lanes > 1 && p_.has_moment();
  for (int64_t c = 0; starts && c < chunks; ++c) {
    if (c == static_cast<int64_t>(starts_.size())) starts_.push_back(KeyState::make(p_, arena_));
    starts_[c].copy_from(p_, state);
    prepares_[0]->skip(span_of(c), state, scratch_[0]);
  }
  for_chunks(lanes, chunks, [&](int64_t lane, int64_t c) {
    Prepare& prepare = *prepares_[lane];
    ChunkCore& core = *cores_[lane];
    KeyChunk& key = purpose_ == Purpose::kBackward ? records[c].key : scratch_[lane];
    prepare.forward(span_of(c), starts ? starts_[c] : state, key);
    if (c + lanes < chunks) {
      core.prefetcher().clear();
      prefetch_tokens(p_.in.k, span_of(c + lanes), key_head_, p_.K, core.prefetcher());
      if (purpose_ != Purpose::kStates)
        prefetch_tokens(p_.in.q, span_of(c + lanes), key_head_, p_.K, core.prefetcher());
      core.prefetcher().ask_all();
    }
    core.begin_key(key);
    for (int64_t v = 0; v < p_.group; ++v) {
      prepare.gates(key, key_head_ * p_.group + v, records[c].gates[v]);
      core.operands(key, records[c].gates[v], /*decayed_reads=*/true, records[c].ops[v]);
    }
  });
}

}  // namespace deltanet
