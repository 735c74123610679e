#include <algorithm>
#include <memory>

#include "recurrence/chunk.h"
#include "recurrence/tasks.h"

namespace deltanet {
namespace {

// One key head of the task with the states it carries.
struct HeadRun {
  int64_t index;
  Prepare prepare;
  KeyState key_state;
  std::vector<float*> states;  // S of each value head of the group

  HeadRun(const Problem& p, const Sequence& sequence, int64_t key_head, int64_t lds, Arena& arena)
      : index(key_head), prepare(p, key_head, Purpose::kForward, arena), key_state(KeyState::make(p, arena)) {
    key_state.load_initial(p, sequence, key_head);
    for (int64_t v = 0; v < p.group; ++v) {
      states.push_back(arena.take_zeros(p.Kp * lds));
      if (p.in.S0) load_state(p.in.S0, sequence.index, key_head * p.group + v, p.K, p.V, states.back(), lds);
    }
  }
};

// The rows of the head that comes after `head`: the next one in this chunk, or the first one in the next chunk.
void prefetch_next(const Problem& p, const Task& task, const Span& span, int64_t head, const Outputs& out,
                   Prefetcher& prefetcher) {
  prefetcher.clear();
  const bool wraps = head + 1 == task.first_head + task.heads;
  const int64_t key_head = wraps ? task.first_head : head + 1;
  const int64_t token = wraps ? span.token + kChunk : span.token;
  const Span next{span.batch, token, std::min(kChunk, task.sequence.end - token), kChunk};
  prefetcher.add(p.in.q, next, key_head, p.K);
  prefetcher.add(p.in.k, next, key_head, p.K);
  for (int64_t u = key_head * p.group; u < (key_head + 1) * p.group; ++u) {
    if (p.spec.decay == Decay::kDiag) prefetcher.add(p.in.g, next, u, p.K);
    prefetcher.add(p.in.v, next, u, p.V);
    prefetcher.add(out.o, next, u, p.V);
  }
}

}  // namespace

void run_chunked(const Problem& p, const Task& task, const Outputs& out) {
  const TaskArena task_arena;
  Arena& arena = task_arena.get();
  ChunkCore core(p, arena);
  const int64_t lds = simd::panel_stride(p.V);
  std::vector<std::unique_ptr<HeadRun>> runs;
  for (int64_t h = 0; h < task.heads; ++h) {
    runs.push_back(std::make_unique<HeadRun>(p, task.sequence, task.first_head + h, lds, arena));
  }
  KeyChunk key = runs[0]->prepare.make_chunk(arena);
  Gates gates = runs[0]->prepare.make_gates(arena);
  Operands ops = core.make_operands(arena);
  float* d = arena.take_zeros(core.value_rows() * p.Vp);
  float* o = arena.take(kChunk * p.Vp);

  for (int64_t token = task.sequence.begin; token < task.sequence.end; token += kChunk) {
    const Span span{task.sequence.batch, token, std::min(kChunk, task.sequence.end - token), kChunk};
    for (auto& run : runs) {
      run->prepare.forward(span, run->key_state, key);
      prefetch_next(p, task, span, run->index, out, core.prefetcher());
      core.begin_key(key);
      for (int64_t v = 0; v < p.group; ++v) {
        const int64_t u = run->index * p.group + v;
        run->prepare.gates(key, u, gates);
        core.operands(key, gates, /*decayed_reads=*/false, ops);
        load_values(p, span, u, 0, p.V, gates, d, p.Vp);
        core.forward(ops, p.Vp, run->states[v], lds, d, p.Vp, o, p.Vp);
        if (out.o) store_rows(o, p.Vp, span, u, p.V, out.o);
      }
    }
  }

  for (auto& run : runs) {
    for (int64_t v = 0; v < p.group; ++v) {
      if (!out.S_final) break;
      store_state(run->states[v], lds, task.sequence.index, run->index * p.group + v, p.K, p.V, out.S_final);
    }
    run->key_state.store_final(p, task.sequence, run->index, out);
  }
}

}  // namespace deltanet
