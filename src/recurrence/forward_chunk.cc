#include <algorithm>
#include <memory>

#include "recurrence/chunk.h"
#include "recurrence/tasks.h"

namespace deltanet {
namespace {

struct UnitState {
  Unit unit;
  float* S;
  int64_t lds;
};

// One key head of the task with the states it carries.
struct HeadRun {
  Prepare prepare;
  KeyState key_state;
  std::vector<UnitState> units;

  HeadRun(const Problem& p, const Sequence& sequence, const HeadTask& head, Arena& arena)
      : prepare(p, head.key_head, Purpose::kForward, arena), key_state(KeyState::make(p, arena)) {
    key_state.load_initial(p, sequence, head.key_head);
    for (const Unit& unit : head.units) {
      const int64_t lds = simd::panel_stride(unit.columns);
      units.push_back({unit, arena.take_zeros(p.Kp * lds), lds});
      if (p.in.S0) {
        load_state(columns_from(p.in.S0, unit.first), sequence.index, unit.value_head, p.K, unit.columns, units.back().S,
                   lds);
      }
    }
  }
};

// The rows of the head that comes after `h`: the next one in this chunk, or the first one in the next chunk.
void prefetch_next(const Problem& p, const Task& task, const Span& span, size_t h, const Outputs& out,
                   Prefetcher& prefetcher) {
  prefetcher.clear();
  const bool wraps = h + 1 == task.heads.size();
  const HeadTask& head = task.heads[wraps ? 0 : h + 1];
  const int64_t token = wraps ? span.token + kChunk : span.token;
  const Span next{span.batch, token, std::min(kChunk, task.sequence.end - token), kChunk};
  prefetcher.add(p.in.q, next, head.key_head, p.K);
  prefetcher.add(p.in.k, next, head.key_head, p.K);
  for (const Unit& unit : head.units) {
    if (p.spec.decay == Decay::kDiag) prefetcher.add(p.in.g, next, unit.value_head, p.K);
    prefetcher.add(columns_from(p.in.v, unit.first), next, unit.value_head, unit.columns);
    prefetcher.add(columns_from(out.o, unit.first), next, unit.value_head, unit.columns);
  }
}

}  // namespace

void run_chunked(const Problem& p, const Task& task, const Outputs& out) {
  const TaskArena task_arena;
  Arena& arena = task_arena.get();
  ChunkCore core(p, arena);
  std::vector<std::unique_ptr<HeadRun>> runs;
  for (const HeadTask& head : task.heads) runs.push_back(std::make_unique<HeadRun>(p, task.sequence, head, arena));
  KeyChunk key = runs[0]->prepare.make_chunk(arena);
  Gates gates = runs[0]->prepare.make_gates(arena);
  Operands ops = core.make_operands(arena);
  float* d = arena.take_zeros(core.value_rows() * p.Vp);
  float* o = arena.take(kChunk * p.Vp);
  float* values = d + (p.write_sets - 1) * kChunk * p.Vp;

  for (int64_t token = task.sequence.begin; token < task.sequence.end; token += kChunk) {
    const Span span{task.sequence.batch, token, std::min(kChunk, task.sequence.end - token), kChunk};
    for (size_t h = 0; h < runs.size(); ++h) {
      HeadRun* run = runs[h].get();
      run->prepare.forward(span, run->key_state, key);
      prefetch_next(p, task, span, h, out, core.prefetcher());
      core.begin_key(key);
      for (UnitState& state : run->units) {
        const Unit& unit = state.unit;
        run->prepare.gates(key, unit.value_head, gates);
        core.operands(key, gates, ops);
        if (p.write_sets == 2) std::fill_n(d, kChunk * p.Vp, 0.0f);
        load_rows(columns_from(p.in.v, unit.first), span, unit.value_head, unit.columns, values, p.Vp);
        const int64_t columns = simd::padded(unit.columns);
        p.simd.scale_rows(kChunk, columns, gates.gain, values, p.Vp, values, p.Vp);
        core.forward(ops, columns, state.S, state.lds, d, p.Vp, o, p.Vp);
        if (out.o) store_rows(o, p.Vp, span, unit.value_head, unit.columns, columns_from(out.o, unit.first));
      }
    }
  }

  for (size_t h = 0; h < runs.size(); ++h) {
    for (const UnitState& state : runs[h]->units) {
      if (!out.S_final) break;
      store_state(state.S, state.lds, task.sequence.index, state.unit.value_head, p.K, state.unit.columns,
                  columns_from(out.S_final, state.unit.first));
    }
    if (task.heads[h].owns_key_state) {
      runs[h]->key_state.store_final(p, task.sequence, task.heads[h].key_head, out);
    }
  }
}

}  // namespace deltanet
