#pragma once

#include <cstdint>
#include <vector>

#include "recurrence/problem.h"

// How the work is cut. Sequences and key heads are independent; where there are fewer of them than threads, so are the
// value heads of a group and panels of value columns, which never interact in the forward pass. The cut changes which
// thread computes a number, never how it is computed.

namespace deltanet {

// Some value columns of one value head.
struct Unit {
  int64_t value_head, first, columns;
};

struct HeadTask {
  int64_t key_head;
  bool owns_key_state;  // exactly one task per sequence and key head writes the final A, P, G
  std::vector<Unit> units;
};

// Key heads that take turns, chunk by chunk: in [B,T,H,D] their rows are neighbours, so that each page of the inputs is
// visited once instead of once per head.
struct Task {
  Sequence sequence;
  std::vector<HeadTask> heads;
};

// The finest cut allowed.
enum class Cut { kHeads, kColumns };

// Longest sequences first, so that no thread is left with a long one at the end.
std::vector<Task> make_tasks(const Problem& p, int threads, Cut cut);

void run_chunked(const Problem& p, const Task& task, const Outputs& out);
void run_recurrent(const Problem& p, const Task& task, const Outputs& out);

}  // namespace deltanet
