#pragma once

#include <vector>

#include "recurrence/prepare.h"
#include "recurrence/tasks.h"

namespace deltanet {

// Key heads that a task should not exceed, so that a thread can keep its scratch memory from one task to the next.
int64_t most_backward_heads(const Problem& p);

// Gradients of the task's key heads and their value heads over one sequence: stored in `out` where they belong to
// tokens and states, returned, one per key head of the task, where all sequences share them. `threads` share the value
// columns; the result does not depend on their number.
std::vector<SharedGrads> run_backward(const Problem& p, const Task& task, int threads, const OutputGradients& upstream,
                                      const InputGradients& out);

}  // namespace deltanet
