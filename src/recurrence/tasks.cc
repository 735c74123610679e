#include "recurrence/tasks.h"

#include <algorithm>

#include "base/parallel.h"

namespace deltanet {
namespace {

constexpr int64_t kColumns = 32;  // granularity of the cut, the panel of the chunk engine

// All value columns of a key head, cut into `parts` runs of panels of about equal size.
std::vector<std::vector<Unit>> cut_columns(const Problem& p, int64_t key_head, int64_t parts) {
  const int64_t panels = (p.V + kColumns - 1) / kColumns;
  const int64_t total = p.group * panels;
  parts = std::min(parts, total);
  std::vector<std::vector<Unit>> cut(parts);
  for (int64_t part = 0; part < parts; ++part) {
    int64_t panel = total * part / parts;
    const int64_t end = total * (part + 1) / parts;
    while (panel < end) {
      const int64_t head = panel / panels, first = panel % panels;
      const int64_t last = std::min(panels, first + end - panel);
      const int64_t columns = std::min(p.V, last * kColumns) - first * kColumns;
      cut[part].push_back({key_head * p.group + head, first * kColumns, columns});
      panel += last - first;
    }
  }
  return cut;
}

// How many key heads share a task: as many as keep their states in a usual second-level cache, but no more than leave
// every thread a task.
int64_t heads_per_task(const Problem& p, int64_t threads) {
  constexpr int64_t kStateBytes = 1 << 20;
  const int64_t bytes = p.group * p.Kp * simd::panel_stride(p.V) * static_cast<int64_t>(sizeof(float));
  int64_t tasks_per_sequence = (p.shape.H * bytes + kStateBytes - 1) / kStateBytes;
  const int64_t wanted = threads > 1 ? 2 * threads : 1;
  tasks_per_sequence = std::max(tasks_per_sequence, (wanted + p.shape.N - 1) / p.shape.N);
  tasks_per_sequence = std::min(tasks_per_sequence, p.shape.H);
  return (p.shape.H + tasks_per_sequence - 1) / tasks_per_sequence;
}

}  // namespace

std::vector<Task> make_tasks(const Problem& p, int threads, Cut cut) {
  if (threads <= 0) threads = default_threads();
  const int64_t independent = p.shape.N * p.shape.H;
  int64_t parts = 1;
  if (cut == Cut::kColumns && independent < threads) {
    parts = (threads + independent - 1) / independent;
  } else if (cut == Cut::kColumns && independent < 4 * threads && independent % threads != 0) {
    parts = 2;  // evens out a last round in which some threads would have nothing to do
  }
  const int64_t together = parts > 1 ? 1 : heads_per_task(p, threads);
  std::vector<Task> tasks;
  for (const Sequence& sequence : sequences_of(p.in, p.shape)) {
    for (int64_t head = 0; head < p.shape.H; head += together) {
      if (parts > 1) {
        bool first = true;
        for (auto& units : cut_columns(p, head, parts)) {
          tasks.push_back({sequence, {{head, first, std::move(units)}}});
          first = false;
        }
        continue;
      }
      Task task{sequence, {}};
      for (int64_t h = head; h < std::min(head + together, p.shape.H); ++h) {
        task.heads.push_back({h, true, cut_columns(p, h, 1).front()});
      }
      tasks.push_back(std::move(task));
    }
  }
  std::stable_sort(tasks.begin(), tasks.end(), [](const Task& a, const Task& b) {
    return a.sequence.length() > b.sequence.length();
  });
  return tasks;
}

}  // namespace deltanet
