#include <algorithm>
#include <memory>

#include "base/interrupt.h"
#include "base/parallel.h"
#include "recurrence/chunk.h"
#include "recurrence/tasks.h"

namespace deltanet {
namespace {

constexpr int64_t kColumns = 32;  // granularity of a cut by columns: the panel of the chunk engine

// Some value columns of one value head.
struct Columns {
  int64_t value_head, first, columns;
};

// All value columns of a key head, cut into `parts` runs of panels of about equal size. A run may span value heads.
std::vector<std::vector<Columns>> cut_columns(const Problem& p, int64_t key_head, int64_t parts) {
  const int64_t panels = (p.V + kColumns - 1) / kColumns;
  const int64_t total = p.group * panels;
  parts = std::min(parts, total);
  std::vector<std::vector<Columns>> cut(parts);
  for (int64_t part = 0; part < parts; ++part) {
    int64_t panel = total * part / parts;
    const int64_t end = total * (part + 1) / parts;
    while (panel < end) {
      const int64_t value = panel / panels, first = panel % panels;
      const int64_t last = std::min(panels, first + end - panel);
      cut[part].push_back(
          {key_head * p.group + value, first * kColumns, std::min(p.V, last * kColumns) - first * kColumns});
      panel += last - first;
    }
  }
  return cut;
}

// Some columns of one key head, with the states they carry.
struct HeadRun {
  int64_t key_head;
  std::vector<Columns> columns;
  bool owns_key_state;  // of all runs of a head, one writes the final A, P, G
  Prepare prepare;
  KeyState key_state;
  std::vector<float*> states;  // S of each entry of `columns`, [Kp][lds]

  // `initial`: what the key head carries at the start of the sequence.
  HeadRun(const Problem& p, const Sequence& sequence, int64_t head, const KeyState& initial, std::vector<Columns> cut,
          bool owns, int64_t lds, Arena& arena)
      : key_head(head),
        columns(std::move(cut)),
        owns_key_state(owns),
        prepare(p, head, Purpose::kForward, arena),
        key_state(KeyState::make(p, arena)) {
    key_state.copy_from(p, initial);
    for (const Columns& c : columns) {
      states.push_back(arena.take_zeros(p.Kp * lds));
      if (!p.in.S0) continue;
      load_state(columns_from(p.in.S0, c.first), sequence.index, c.value_head, p.K, c.columns, states.back(), lds);
    }
  }

  void store_final(const Problem& p, const Sequence& sequence, int64_t lds, const Outputs& out) const {
    for (size_t i = 0; out.S_final && i < columns.size(); ++i) {
      const Columns& c = columns[i];
      store_state(states[i], lds, sequence.index, c.value_head, p.K, c.columns, columns_from(out.S_final, c.first));
    }
    if (owns_key_state) key_state.store_final(p, sequence, key_head, out);
  }
};

void prefetch(const Problem& p, const HeadRun& run, const Span& span, const Outputs& out,
              simd::Prefetcher& prefetcher) {
  prefetcher.clear();
  prefetch_tokens(p.in.q, span, run.key_head, p.K, prefetcher);
  prefetch_tokens(p.in.k, span, run.key_head, p.K, prefetcher);
  prefetch_tokens(p.in.k_write, span, run.key_head, p.K, prefetcher);
  prefetch_tokens(p.in.k_erase, span, run.key_head, p.K, prefetcher);
  for (const Columns& c : run.columns) {
    if (p.spec.decay == Decay::kDiag) prefetch_tokens(p.in.g, span, c.value_head, p.K, prefetcher);
    prefetch_tokens(columns_from(p.in.v, c.first), span, c.value_head, c.columns, prefetcher);
    prefetch_tokens(columns_from(out.o, c.first), span, c.value_head, c.columns, prefetcher);
    prefetch_tokens(columns_from(p.writes, c.first), span, c.value_head, c.columns, prefetcher);
  }
}

constexpr int64_t kPiece = 64;  // floats: as many lines as a row of a small head

// The gates of all heads usually lie together, so they are asked for once per chunk.
void prefetch_gates(const Problem& p, const Span& span, simd::Prefetcher& prefetcher) {
  for (const ConstTensor* gate : {&p.in.g, &p.in.beta, &p.in.g_atk, &p.in.beta_atk}) {
    const bool together = *gate && gate->rank == 3 && gate->stride[2] == 1 && gate->stride[1] == gate->shape[2];
    if (!together) continue;
    const int64_t floats = span.tokens * gate->shape[2];
    for (int64_t i = 0; i < floats; i += kPiece) {
      prefetcher.add(first_token(*gate, span, 0) + i, std::min(kPiece, floats - i));
    }
  }
}

using Runs = std::vector<std::unique_ptr<HeadRun>>;

// Takes the runs through the sequence, chunk by chunk in turn.
void run_heads(const Problem& p, const Sequence& sequence, Runs& runs, int64_t lds, Arena& arena, const Outputs& out) {
  ChunkCore core(p, arena);
  KeyChunk key = runs[0]->prepare.make_chunk(arena);
  Gates gates = runs[0]->prepare.make_gates(arena);
  Operands ops = core.make_operands(arena);
  float* d = arena.take_zeros(core.value_rows() * p.Vp);
  float* o = arena.take(kChunk * p.Vp);
  const auto span_at = [&](int64_t token) {
    return Span{sequence.batch, token, std::min(kChunk, sequence.end - token), kChunk};
  };

  for (int64_t token = sequence.begin; token < sequence.end; token += kChunk) {
    const Span span = span_at(token);
    for (size_t r = 0; r < runs.size(); ++r) {
      check_interrupt();
      HeadRun& run = *runs[r];
      run.prepare.forward(span, run.key_state, key);
      // What comes next is the next head, or the next chunk of the first one.
      const bool wraps = r + 1 == runs.size();
      prefetch(p, *runs[wraps ? 0 : r + 1], wraps ? span_at(token + kChunk) : span, out, core.prefetcher());
      if (wraps && token + kChunk < sequence.end) prefetch_gates(p, span_at(token + kChunk), core.prefetcher());
      core.begin_key(key);
      for (size_t i = 0; i < run.columns.size(); ++i) {
        const Columns& c = run.columns[i];
        run.prepare.gates(key, c.value_head, gates);
        core.operands(key, gates, /*decayed_reads=*/false, ops);
        load_values(p, span, c.value_head, c.first, c.columns, gates, d, p.Vp);
        core.forward(ops, simd::padded(c.columns), run.states[i], lds, d, p.Vp, o, p.Vp);
        if (p.writes) store_tokens(d, p.Vp, span, c.value_head, c.columns, columns_from(p.writes, c.first));
        if (out.o) store_tokens(o, p.Vp, span, c.value_head, c.columns, columns_from(out.o, c.first));
      }
    }
  }
  for (auto& run : runs) run->store_final(p, sequence, lds, out);
}

}  // namespace

void run_chunked(const Problem& p, const Task& task, const Outputs& out) {
  const TaskArena arena;
  const int64_t lds = simd::panel_stride(p.V);
  Runs runs;
  KeyState initial = KeyState::make(p, arena.get());
  for (int64_t head = task.first_head; head < task.first_head + task.heads; ++head) {
    initial.load_initial(p, task.sequence, head);
    runs.push_back(std::make_unique<HeadRun>(p, task.sequence, head, initial, cut_columns(p, head, 1).front(),
                                             /*owns=*/true, lds, arena.get()));
  }
  run_heads(p, task.sequence, runs, lds, arena.get(), out);
}

// Each thread prepares the keys for itself: that is an eighth of the work, and cheaper than handing every chunk of keys
// from one core's cache to the other's. What the key head starts from is read before any of them begins: a thread that
// is late would find the final state there, where that overwrites the initial one.
void run_chunked_shared(const Problem& p, const Task& task, int threads, const Outputs& out) {
  const std::vector<std::vector<Columns>> parts = cut_columns(p, task.first_head, threads);
  Arena shared;
  KeyState initial = KeyState::make(p, shared);
  initial.load_initial(p, task.sequence, task.first_head);
  parallel_for(threads, static_cast<int64_t>(parts.size()), [&](int64_t i) {
    const TaskArena arena;
    const int64_t lds = simd::panel_stride(p.V);
    Runs runs;
    runs.push_back(std::make_unique<HeadRun>(p, task.sequence, task.first_head, initial, parts[i], /*owns=*/i == 0, lds,
                                             arena.get()));
    run_heads(p, task.sequence, runs, lds, arena.get(), out);
  });
}

}  // namespace deltanet
