#pragma once

#include <cstdint>
#include <string>

namespace deltanet {

// What a training step holds in memory, in bytes.
struct MemoryPlan {
  int64_t weights = 0, gradients = 0, moments = 0, activations = 0;
  int64_t total() const { return weights + gradients + moments + activations; }
};

// What this process may still take: of the machine, or of the limit that it runs under.
int64_t available_memory();

// Throws Error with all parts of the plan if it does not fit beside what other processes of the run plan on the same
// machine.
void check_fits(const MemoryPlan& plan, int64_t available, int64_t of_others = 0);

std::string gigabytes(double bytes);  // "1.37 GB"

}  // namespace deltanet
