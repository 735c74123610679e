#include "recurrence/backward.h"

#include <algorithm>
#include <functional>
#include <memory>

#include "base/interrupt.h"
#include "base/parallel.h"
#include "recurrence/matrix_precond.h"
#include "recurrence/segment.h"

// Memory: a task holds the solved writes of its sequence, T x V per value head, unless forward has handed them over,
// the state at every kSegment-th token, T/kSegment x K x V, and the states and operands of one segment. The states
// between are recomputed from the writes.

namespace deltanet {
namespace {

constexpr int64_t kSegmentChunks = 16;
constexpr int64_t kSegment = kSegmentChunks * kChunk;  // tokens between two kept states

// What a value head keeps for the whole sequence.
struct ValueHead {
  int64_t index;
  std::vector<float*> kept;  // state at the start of each segment
  float* writes;             // solved writes of all segments but the last; null: forward has handed them over
  float* dstate;             // gradient of the state
};

// What a key head keeps for the whole sequence.
struct KeyHead {
  int64_t index;
  SegmentPrepare prepare;
  SegmentPrepare scout;  // for states alone
  KeyState state;
  std::vector<KeyState> kept;
  KeyState dstate;  // its gradient
  SharedGrads shared;
  std::vector<ValueHead> values;

  KeyHead(const Problem& p, int64_t head, const Cores& cores, Arena& arena)
      : index(head),
        prepare(p, head, Purpose::kBackward, cores, arena),
        scout(p, head, Purpose::kStates, cores, arena),
        state(KeyState::make(p, arena)),
        dstate(KeyState::make(p, arena)),
        shared(p) {}
};

// The states and writes of one chunk of the current segment, per value head of the group.
struct ChunkStates {
  std::vector<float*> states;  // before the chunk; the first chunk of a segment uses the kept state instead
  std::vector<float*> writes;  // not used where the value head keeps them
};

// Gradients of one chunk on their way from the operands to the inputs.
struct ChunkGrads {
  KeyGrads key;
  std::vector<GateGrads> gates;
};

// Value columns of one value head that are streamed together, possibly on a thread of their own.
struct ColumnBlock {
  int64_t value;           // within the group
  int64_t first, columns;  // unpadded
  bool adds;               // to the sums of the block before
  ChunkCore core;
  std::vector<OperandGrads> sums;  // of one chunk, or of each chunk of the segment
  float *values, *dd, *running;

  int64_t n() const { return simd::padded(columns); }
};

class BackwardTask {
 public:
  BackwardTask(const Problem& p, const Task& task, int threads, const OutputGradients& upstream,
               const InputGradients& out, Arena& arena)
      : p_(p),
        sequence_(task.sequence),
        threads_(threads),
        upstream_(upstream),
        out_(out),
        arena_(arena),
        cores_(make_cores(p, threads, arena)),
        core_(*cores_[0]),
        segments_(std::max<int64_t>(1, (task.sequence.length() + kSegment - 1) / kSegment)) {
    for (int64_t h = 0; h < task.heads; ++h) add_head(task.first_head + h);
    allocate_records();
    for (int64_t v = 0; v < p_.group; ++v) {
      for (int64_t first = 0; first < p_.V; first += kColumnBlock) add_block(v, first);
    }
  }

  std::vector<SharedGrads> run();

 private:
  int64_t state_size() const { return p_.Vp * core_.state_stride(); }
  int64_t chunk_values() const { return core_.value_rows() * p_.Vp; }
  Span span_at(int64_t token) const {
    return {sequence_.batch, token, std::min(kChunk, sequence_.end - token), kChunk};
  }
  Span chunk_span(int64_t segment, int64_t chunk) const {
    return span_at(sequence_.begin + segment * kSegment + chunk * kChunk);
  }
  int64_t chunks_in(int64_t segment) const {
    const int64_t tokens = std::min(kSegment, sequence_.length() - segment * kSegment);
    return (tokens + kChunk - 1) / kChunk;
  }

  void add_head(int64_t key_head);
  void allocate_records();
  void add_block(int64_t value, int64_t first);
  bool keeps_writes(int64_t segment) const { return !p_.writes && segment + 1 < segments_; }
  bool loads_values() const { return !p_.writes || p_.write_sets == 2; }
  void load_writes(const KeyHead& head, int64_t segment, int64_t chunk, const ColumnBlock& block, float* d) const;
  void prefetch_writes(const KeyHead& head, const Span& span, ColumnBlock& block);
  void load_state_gradients(KeyHead& head);
  void store_state_gradients(KeyHead& head);
  void prefetch_columns(const KeyHead& head, int64_t segment, Purpose purpose);
  void sweep_block(KeyHead& head, int64_t segment, ColumnBlock& block);
  void recompute_block(KeyHead& head, int64_t segment, ColumnBlock& block);
  void backward_block(KeyHead& head, int64_t segment, int64_t chunk, ColumnBlock& block);
  void finish_operands(KeyHead& head, int64_t lane, int64_t chunk);
  void finish_keys(KeyHead& head, int64_t chunk);
  void backward_segment(KeyHead& head, int64_t segment);
  void for_blocks(const std::function<void(ColumnBlock&)>& body);
  float* kept_writes(const KeyHead& head, int64_t segment, int64_t chunk, const ColumnBlock& block) const {
    return head.values[block.value].writes + (segment * kSegmentChunks + chunk) * chunk_values() +
           block.first * core_.value_rows();
  }
  // The state before a chunk and its solved writes, at the first column of the block.
  float* state_at(const KeyHead& head, int64_t segment, int64_t chunk, const ColumnBlock& block) const {
    float* state = chunk == 0 ? head.values[block.value].kept[segment] : chunk_states_[chunk].states[block.value];
    return state + block.first * core_.state_stride();
  }
  float* writes_at(const KeyHead& head, int64_t segment, int64_t chunk, const ColumnBlock& block) const {
    if (keeps_writes(segment)) return kept_writes(head, segment, chunk, block);
    return chunk_states_[chunk].writes[block.value] + block.first * core_.value_rows();
  }

  const Problem& p_;
  const Sequence sequence_;
  const int threads_;
  const OutputGradients& upstream_;
  const InputGradients& out_;
  Arena& arena_;
  const Cores cores_;      // one per thread that prepares and finishes chunks
  const ChunkCore& core_;  // any of them, for sizes
  const int64_t segments_;

  std::vector<std::unique_ptr<KeyHead>> heads_;
  std::vector<ChunkRecord> records_;
  std::vector<ChunkStates> chunk_states_;
  std::vector<ChunkGrads> chunk_grads_;  // of one chunk, or of each chunk of the segment
  std::vector<std::unique_ptr<ColumnBlock>> blocks_;
  simd::Prefetcher prefetcher_;
};

void BackwardTask::add_head(int64_t key_head) {
  heads_.push_back(std::make_unique<KeyHead>(p_, key_head, cores_, arena_));
  KeyHead& head = *heads_.back();
  for (int64_t s = 0; s < segments_; ++s) head.kept.push_back(KeyState::make(p_, arena_));
  for (int64_t v = 0; v < p_.group; ++v) {
    ValueHead value{key_head * p_.group + v, {}, nullptr, arena_.take_zeros(state_size())};
    for (int64_t s = 0; s < segments_; ++s) value.kept.push_back(arena_.take(state_size()));
    std::fill_n(value.kept[0], state_size(), 0.0f);
    if (keeps_writes(0)) value.writes = arena_.take((segments_ - 1) * kSegmentChunks * chunk_values());
    head.values.push_back(std::move(value));
  }
}

void BackwardTask::allocate_records() {
  SegmentPrepare& prepare = heads_[0]->prepare;
  const int64_t chunks = chunks_in(0);
  for (int64_t c = 0; c < chunks; ++c) {
    records_.push_back(prepare.make_record(arena_));
    ChunkStates states;
    for (int64_t v = 0; v < p_.group; ++v) {
      states.states.push_back(arena_.take(state_size()));
      states.writes.push_back(arena_.take(chunk_values()));
    }
    chunk_states_.push_back(std::move(states));
  }
  for (int64_t c = 0; c < (threads_ == 1 ? 1 : chunks); ++c) {
    ChunkGrads grads{prepare.prepare().make_grads(arena_), {}};
    for (int64_t v = 0; v < p_.group; ++v) grads.gates.push_back(prepare.prepare().make_gate_grads(arena_));
    chunk_grads_.push_back(std::move(grads));
  }
}

// On one thread the blocks of a value head add to the same sums of one chunk after the other; on several each block has
// its own for the whole segment, and finish_chunk adds them in the same order.
void BackwardTask::add_block(int64_t value, int64_t first) {
  const bool shares = first > 0 && threads_ == 1;
  const int64_t columns = std::min(kColumnBlock, p_.V - first);
  blocks_.push_back(std::make_unique<ColumnBlock>(ColumnBlock{value,
                                                              first,
                                                              columns,
                                                              shares,
                                                              ChunkCore(p_, arena_),
                                                              {},
                                                              arena_.take(kChunk * kColumnBlock),
                                                              arena_.take(core_.value_rows() * kColumnBlock),
                                                              arena_.take(kColumnBlock * core_.state_stride())}));
  ColumnBlock& block = *blocks_.back();
  if (shares) {
    block.sums = blocks_[blocks_.size() - 2]->sums;
  } else {
    const size_t chunks = threads_ == 1 ? 1 : records_.size();
    for (size_t c = 0; c < chunks; ++c) block.sums.push_back(core_.make_operand_grads(arena_));
  }
}

void BackwardTask::load_state_gradients(KeyHead& head) {
  const int64_t n = sequence_.index;
  for (ValueHead& value : head.values) {
    if (upstream_.S_final) {
      load_transposed(upstream_.S_final, n, value.index, p_.K, p_.V, value.dstate, core_.state_stride());
    }
  }
  float* const* A = head.dstate.A;  // the final moment is that of the first side that has one
  if (upstream_.A_final) load_state(upstream_.A_final, n, head.index, 1, p_.K, A[0] ? A[0] : A[1], 0);
  for (const Side side : kSides) {
    const bool inverse = p_.on(side).carries == Carried::kInverseGram;
    const ConstTensor& matrix = inverse ? upstream_.P_final : upstream_.G_final;
    float* target = head.dstate.matrix[at(side)];
    if (!target || !matrix || (side == Side::kQuery && p_.both_blocks()))
      continue;  // the final Gram is that of the key
    load_state(matrix, n, head.index, p_.K, p_.K, target, p_.Kp);
    if (inverse && p_.spec.decay != Decay::kNone) symmetrize(p_.K, target, p_.Kp);
    if (p_.on(side).operation == Operation::kBlock) keep_blocks(p_, target);
  }
}

void BackwardTask::store_state_gradients(KeyHead& head) {
  const int64_t n = sequence_.index;
  for (const ValueHead& value : head.values) {
    if (out_.S0) store_transposed(value.dstate, core_.state_stride(), n, value.index, p_.K, p_.V, out_.S0);
  }
  float* const* A = head.dstate.A;
  if (A[0] && A[1]) {  // both sides started from the same moment
    for (int64_t i = 0; i < p_.K; ++i) A[0][i] += A[1][i];
  }
  if (out_.A0) store_state(A[0] ? A[0] : A[1], 0, n, head.index, 1, p_.K, out_.A0);
  for (const Side side : kSides) {
    float* dmatrix = head.dstate.matrix[at(side)];
    if (!dmatrix) continue;
    const bool inverse = p_.on(side).carries == Carried::kInverseGram;
    if (inverse && !p_.in.P0) {
      // P0 = I/ridge.
      const ConstTensor& ridge = p_.in.ridge;
      for (int64_t i = 0; i < p_.K; ++i) {
        const bool per_channel = ridge.rank == 2;
        const float r = ridge.data[head.index * ridge.stride[0] + (per_channel ? i * ridge.stride[1] : 0)];
        head.shared.ridge[per_channel ? i : 0] -= dmatrix[i * p_.Kp + i] / (r * r);
      }
    }
    if (inverse || !p_.free_gram_gradient) symmetrize(p_.K, dmatrix, p_.Kp);
    const Tensor& target = inverse ? out_.P0 : out_.G0;
    if (side == Side::kKey && p_.both_blocks()) {  // both sides started from the same Gram
      for (int64_t i = 0; i < p_.K * p_.Kp; ++i) head.dstate.matrix[at(Side::kQuery)][i] += dmatrix[i];
      continue;
    }
    if (target) store_state(dmatrix, p_.Kp, n, head.index, p_.K, p_.K, target);
  }
}

// What forward has handed over: the solved writes, and DPLR's given ones beside them. Otherwise the right-hand side of
// the solve.
void BackwardTask::load_writes(const KeyHead& head, int64_t segment, int64_t c, const ColumnBlock& block,
                               float* d) const {
  const int64_t value_head = head.values[block.value].index;
  const Span span = chunk_span(segment, c);
  if (loads_values()) {
    load_values(p_, span, value_head, block.first, block.columns, records_[c].gates[block.value], d, block.n());
  }
  if (p_.writes) load_tokens(columns_from(p_.writes, block.first), span, value_head, block.columns, d, block.n());
}

// Asks for what load_writes is to load next; for nothing, if the span is empty.
void BackwardTask::prefetch_writes(const KeyHead& head, const Span& span, ColumnBlock& block) {
  const int64_t value_head = head.values[block.value].index;
  simd::Prefetcher& prefetcher = block.core.prefetcher();
  prefetcher.clear();
  if (loads_values()) prefetch_tokens(columns_from(p_.in.v, block.first), span, value_head, block.columns, prefetcher);
  prefetch_tokens(columns_from(p_.writes, block.first), span, value_head, block.columns, prefetcher);
}

// Asks for the writes or values and output gradients that the stream over the columns starts with.
void BackwardTask::prefetch_columns(const KeyHead& head, int64_t segment, Purpose purpose) {
  const bool needs_writes = purpose == Purpose::kStates || !keeps_writes(segment);
  prefetcher_.clear();
  for (const ValueHead& value : head.values) {
    if (needs_writes) {
      if (loads_values()) prefetch_tokens(p_.in.v, chunk_span(segment, 0), value.index, p_.V, prefetcher_);
      prefetch_tokens(p_.writes, chunk_span(segment, 0), value.index, p_.V, prefetcher_);
    }
    if (purpose == Purpose::kBackward) {
      prefetch_tokens(upstream_.o, chunk_span(segment, chunks_in(segment) - 1), value.index, p_.V, prefetcher_);
    }
  }
  prefetcher_.ask_all();
}

// Forward over a segment that is not the last, keeping the state at its end and its writes, if they are not at hand.
void BackwardTask::sweep_block(KeyHead& head, int64_t segment, ColumnBlock& block) {
  ValueHead& value = head.values[block.value];
  const int64_t offset = block.first * core_.state_stride();
  for (int64_t c = 0; c < kSegmentChunks; ++c) {
    float* d = p_.writes ? block.dd : kept_writes(head, segment, c, block);
    load_writes(head, segment, c, block, d);
    prefetch_writes(head, c + 1 < kSegmentChunks ? chunk_span(segment, c + 1) : Span{}, block);
    block.core.advance(records_[c].ops[block.value], /*solved=*/bool(p_.writes), block.n(),
                       c == 0 ? value.kept[segment] + offset : block.running, d,
                       c + 1 == kSegmentChunks ? value.kept[segment + 1] + offset : block.running);
  }
}

// Recomputes the states of a segment and, if they are not at hand, its writes.
void BackwardTask::recompute_block(KeyHead& head, int64_t segment, ColumnBlock& block) {
  const bool keeps = keeps_writes(segment), solved = keeps || p_.writes || !p_.erases;
  const int64_t chunks = chunks_in(segment), v = block.value;
  for (int64_t c = 0; c < chunks; ++c) {
    float* writes = writes_at(head, segment, c, block);
    if (!keeps) load_writes(head, segment, c, block, writes);
    // The state after the last chunk is not needed, but its writes are.
    if (c + 1 == chunks && solved) break;
    prefetch_writes(head, keeps || c + 1 == chunks ? Span{} : chunk_span(segment, c + 1), block);
    block.core.advance(records_[c].ops[v], solved, block.n(), state_at(head, segment, c, block), writes,
                       c + 1 < chunks ? state_at(head, segment, c + 1, block) : block.running);
  }
}

void BackwardTask::backward_block(KeyHead& head, int64_t segment, int64_t c, ColumnBlock& block) {
  const int64_t n = block.n(), v = block.value;
  ValueHead& value = head.values[v];
  OperandGrads& sums = block.sums[c % static_cast<int64_t>(block.sums.size())];
  const ConstTensor v_in = columns_from(p_.in.v, block.first);
  const Tensor v_out = columns_from(out_.v, block.first);
  const ConstTensor d_o = columns_from(upstream_.o, block.first);
  const Span span = chunk_span(segment, c);
  float* d_out = block.core.output_gradient(n);
  if (d_o) {
    load_tokens(d_o, span, value.index, block.columns, d_out, n);
  } else {
    std::fill_n(d_out, kChunk * n, 0.0f);
  }
  simd::Prefetcher& prefetcher = block.core.prefetcher();
  prefetcher.clear();
  prefetch_tokens(v_in, span, value.index, block.columns, prefetcher);
  prefetch_tokens(v_out, span, value.index, block.columns, prefetcher);
  if (c > 0) prefetch_tokens(d_o, chunk_span(segment, c - 1), value.index, block.columns, prefetcher);
  block.core.backward(records_[c].ops[v], n, state_at(head, segment, c, block), writes_at(head, segment, c, block),
                      value.dstate + block.first * core_.state_stride(), block.dd, block.adds, sums);

  float* dvalues = block.dd + (p_.write_sets - 1) * kChunk * n;
  load_tokens(v_in, span, value.index, block.columns, block.values, n);
  p_.simd.dot_rows(kChunk, n, dvalues, n, block.values, n, sums.gain);
  if (v_out) {
    p_.simd.scale_rows(kChunk, n, records_[c].gates[v].gain, dvalues, n, dvalues, n);
    store_tokens(dvalues, n, span, value.index, block.columns, v_out);
  }
}

// From the sums over all columns to the gradients of keys and gates.
void BackwardTask::finish_operands(KeyHead& head, int64_t lane, int64_t c) {
  const ChunkRecord& record = records_[c];
  ChunkGrads& grads = chunk_grads_[c % static_cast<int64_t>(chunk_grads_.size())];
  head.prepare.prepare().clear(grads.key);
  for (int64_t v = 0; v < p_.group; ++v) {
    OperandGrads* sums = nullptr;
    for (auto& block : blocks_) {
      if (block->value != v) continue;
      OperandGrads& part = block->sums[c % static_cast<int64_t>(block->sums.size())];
      if (!sums) {
        sums = &part;
        continue;
      }
      for (int64_t i = 0; i < kChunk; ++i) sums->gain[i] += part.gain[i];
      if (!block->adds) core_.add(part, *sums);
    }
    GateGrads& dgates = grads.gates[v];
    std::copy_n(sums->gain, kChunk, dgates.gain);
    std::fill_n(dgates.erase, kChunk, 0.0f);
    cores_[lane]->operands_backward(record.key, record.gates[v], record.ops[v], *sums, dgates, grads.key);
    head.prepare.prepare().gates_backward(record.key, record.gates[v], dgates, grads.key);
  }
}

// From keys and gates to the inputs, last chunk first: the carried states hand their gradients on.
void BackwardTask::finish_keys(KeyHead& head, int64_t c) {
  ChunkRecord& record = records_[c];
  ChunkGrads& grads = chunk_grads_[c % static_cast<int64_t>(chunk_grads_.size())];
  grads.key.state = head.dstate;
  head.prepare.prepare().backward(record.key, grads.key, grads.gates[0], head.shared, out_);
  for (int64_t v = 0; v < p_.group; ++v) {
    head.prepare.prepare().store_gates(record.key.span, head.values[v].index, grads.gates[v], head.shared, out_);
  }
  if (c == 0) return;
  prefetcher_.clear();
  prefetch_tokens(out_.q, records_[c - 1].key.span, head.index, p_.K, prefetcher_);
  prefetch_tokens(out_.k, records_[c - 1].key.span, head.index, p_.K, prefetcher_);
  prefetcher_.ask_all();
}

// One thread finishes each chunk while its sums are in the cache; several stream their columns through the whole
// segment first.
void BackwardTask::backward_segment(KeyHead& head, int64_t segment) {
  const int64_t chunks = chunks_in(segment);
  if (chunks == 0) return;  // a sequence without tokens: gradients of states pass through
  head.state.copy_from(p_, head.kept[segment]);
  head.prepare.run([&](int64_t c) { return chunk_span(segment, c); }, chunks, head.state, records_);
  prefetch_columns(head, segment, Purpose::kBackward);
  if (threads_ == 1) {
    for (auto& block : blocks_) recompute_block(head, segment, *block);
    for (int64_t c = chunks - 1; c >= 0; --c) {
      for (auto& block : blocks_) backward_block(head, segment, c, *block);
      finish_operands(head, 0, c);
      finish_keys(head, c);
    }
    return;
  }
  for_blocks([&](ColumnBlock& block) {
    recompute_block(head, segment, block);
    for (int64_t c = chunks - 1; c >= 0; --c) backward_block(head, segment, c, block);
  });
  for_chunks(static_cast<int64_t>(cores_.size()), chunks,
             [&](int64_t lane, int64_t c) { finish_operands(head, lane, c); });
  for (int64_t c = chunks - 1; c >= 0; --c) finish_keys(head, c);
}

void BackwardTask::for_blocks(const std::function<void(ColumnBlock&)>& body) {
  parallel_for(threads_, static_cast<int64_t>(blocks_.size()), [&](int64_t i) { body(*blocks_[i]); });
}

// The key heads take turns segment by segment; see tasks.h.
std::vector<SharedGrads> BackwardTask::run() {
  for (auto& head : heads_) {
    load_state_gradients(*head);
    head->state.load_initial(p_, sequence_, head->index);
    head->kept[0].copy_from(p_, head->state);
    for (ValueHead& value : head->values) {
      if (!p_.in.S0) continue;
      load_transposed(p_.in.S0, sequence_.index, value.index, p_.K, p_.V, value.kept[0], core_.state_stride());
    }
  }
  for (int64_t segment = 0; segment + 1 < segments_; ++segment) {
    for (auto& head : heads_) {
      check_interrupt();
      head->scout.run([&](int64_t c) { return chunk_span(segment, c); }, kSegmentChunks, head->state, records_);
      prefetch_columns(*head, segment, Purpose::kStates);
      for_blocks([&](ColumnBlock& block) { sweep_block(*head, segment, block); });
      head->kept[segment + 1].copy_from(p_, head->state);
    }
  }
  for (int64_t segment = segments_ - 1; segment >= 0; --segment) {
    for (auto& head : heads_) {
      check_interrupt();
      backward_segment(*head, segment);
    }
  }
  std::vector<SharedGrads> shared;
  for (auto& head : heads_) {
    store_state_gradients(*head);
    shared.push_back(head->shared);
  }
  return shared;
}

}  // namespace

int64_t most_backward_heads(const Problem& p) {
  constexpr int64_t kFloats = 48 << 20;  // 192 MiB
  int64_t longest = 0;
  for (int64_t n = 0; n < p.shape.N; ++n) longest = std::max(longest, sequence_at(p.in, p.shape, n).length());
  const int64_t state = p.Vp * simd::panel_stride(p.K);
  const int64_t kept = (p.writes ? 0 : longest * p.write_sets * p.Vp) + longest / kSegment * state;
  return std::max<int64_t>(1, kFloats / (p.group * kept + 1));
}

std::vector<SharedGrads> run_backward(const Problem& p, const Task& task, int threads, const OutputGradients& upstream,
                                      const InputGradients& out) {
  const TaskArena arena;
  return BackwardTask(p, task, threads, upstream, out, arena.get()).run();
}

}  // namespace deltanet
