#include <algorithm>

#include "base/parallel.h"
#include "recurrence/chunk.h"
#include "recurrence/tasks.h"

namespace deltanet {
namespace {

constexpr int64_t kColumns = 32;  // granularity of the cut: the panel of the chunk engine

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

// The whole sequence for some columns. Each thread prepares the keys for itself: that is a tenth of the work, and
// cheaper than handing every chunk of keys from one core's cache to the other's.
void run_columns(const Problem& p, const Sequence& sequence, int64_t key_head, const std::vector<Columns>& part,
                 bool owns_key_state, const Outputs& out) {
  const TaskArena task_arena;
  Arena& arena = task_arena.get();
  Prepare prepare(p, key_head, Purpose::kForward, arena);
  ChunkCore core(p, arena);
  KeyState key_state = KeyState::make(p, arena);
  key_state.load_initial(p, sequence, key_head);
  KeyChunk key = prepare.make_chunk(arena);
  Gates gates = prepare.make_gates(arena);
  Operands ops = core.make_operands(arena);
  float* d = arena.take_zeros(core.value_rows() * p.Vp);
  float* o = arena.take(kChunk * p.Vp);
  const int64_t lds = simd::panel_stride(p.V);
  std::vector<float*> states;
  for (const Columns& c : part) {
    states.push_back(arena.take_zeros(p.Kp * lds));
    if (p.in.S0)
      load_state(columns_from(p.in.S0, c.first), sequence.index, c.value_head, p.K, c.columns, states.back(), lds);
  }

  for (int64_t token = sequence.begin; token < sequence.end; token += kChunk) {
    const Span span{sequence.batch, token, std::min(kChunk, sequence.end - token), kChunk};
    prepare.forward(span, key_state, key);
    core.begin_key(key);
    for (size_t i = 0; i < part.size(); ++i) {
      const Columns& c = part[i];
      prepare.gates(key, c.value_head, gates);
      core.operands(key, gates, /*decayed_reads=*/false, ops);
      load_values(p, span, c.value_head, c.first, c.columns, gates, d, p.Vp);
      core.forward(ops, simd::padded(c.columns), states[i], lds, d, p.Vp, o, p.Vp);
      if (out.o) store_rows(o, p.Vp, span, c.value_head, c.columns, columns_from(out.o, c.first));
    }
  }

  for (size_t i = 0; i < part.size(); ++i) {
    const Columns& c = part[i];
    if (!out.S_final) break;
    store_state(states[i], lds, sequence.index, c.value_head, p.K, c.columns, columns_from(out.S_final, c.first));
  }
  if (owns_key_state) key_state.store_final(p, sequence, key_head, out);
}

}  // namespace

void run_chunked_shared(const Problem& p, const Task& task, int threads, const Outputs& out) {
  const std::vector<std::vector<Columns>> parts = cut_columns(p, task.first_head, threads);
  parallel_for(threads, static_cast<int64_t>(parts.size()),
               [&](int64_t i) { run_columns(p, task.sequence, task.first_head, parts[i], i == 0, out); });
}

}  // namespace deltanet
