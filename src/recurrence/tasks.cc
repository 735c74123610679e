#include "recurrence/tasks.h"

#include <algorithm>
#include <tuple>
#include <vector>

namespace deltanet {
namespace {

// How many key heads share a task: as many as keep their states in a usual second-level cache, but no more than leave
// every thread two tasks, so that a thread that is held up does not hold up the others.
int64_t heads_per_task(const Problem& p, int64_t threads) {
  constexpr int64_t kStateBytes = 1 << 20;
  const int64_t bytes = p.group * p.Kp * simd::panel_stride(p.V) * static_cast<int64_t>(sizeof(float));
  const int64_t wanted = threads > 1 ? 2 * threads : 1;
  int64_t tasks_per_sequence = (p.shape.H * bytes + kStateBytes - 1) / kStateBytes;
  const int64_t sequences = std::max<int64_t>(p.shape.N, 1);
  tasks_per_sequence = std::max(tasks_per_sequence, (wanted + sequences - 1) / sequences);
  tasks_per_sequence = std::min(tasks_per_sequence, p.shape.H);
  return (p.shape.H + tasks_per_sequence - 1) / tasks_per_sequence;
}

}  // namespace

std::span<const Task> make_tasks(const Problem& p, int threads, int64_t most_heads) {
  const int64_t together = std::min(most_heads, heads_per_task(p, threads));
  thread_local std::vector<Task> tasks;
  tasks.clear();
  for (int64_t n = 0; n < p.shape.N; ++n) {
    const Sequence sequence = sequence_at(p.in, p.shape, n);
    for (int64_t head = 0; head < p.shape.H; head += together) {
      tasks.push_back({sequence, head, std::min(together, p.shape.H - head)});
    }
  }
  std::sort(tasks.begin(), tasks.end(), [](const Task& a, const Task& b) {  // a stable sort would allocate
    return std::tuple(-a.sequence.length(), a.sequence.index, a.first_head) <
           std::tuple(-b.sequence.length(), b.sequence.index, b.first_head);
  });
  return tasks;
}

}  // namespace deltanet
