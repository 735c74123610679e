#pragma once

#include <cstdint>
#include <span>

#include "recurrence/problem.h"

// How the work is cut. Sequences and key heads are independent. Where there are fewer of them than threads, the threads
// share the value columns of one head after the other. The cut changes which thread computes a number, never how it is
// computed.

namespace deltanet {

// Key heads [first_head, first_head + heads) of one sequence, with their value heads. They take turns, chunk by chunk:
// in [B,T,H,D] their rows are neighbors, so that each page of the inputs is visited once instead of once per head.
struct Task {
  Sequence sequence;
  int64_t first_head, heads;
};

// Longest sequences first, so that no thread is left with a long one at the end. Fewer tasks than threads mean one task
// for each sequence and key head. The list is that of the calling thread, valid until its next call: decoding allocates
// nothing.
std::span<const Task> make_tasks(const Problem& p, int threads, int64_t most_heads);

void run_chunked(const Problem& p, const Task& task, const Outputs& out);
void run_recurrent(const Problem& p, const Task& task, const Outputs& out);
// One key head on several threads.
void run_chunked_shared(const Problem& p, const Task& task, int threads, const Outputs& out);

}  // namespace deltanet
