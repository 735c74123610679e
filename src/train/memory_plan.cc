#include "train/memory_plan.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>

#include "deltanet/error.h"

namespace deltanet {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// The number in the first line of a file; "max" and missing files mean no limit.
int64_t number_in(const char* path, int64_t otherwise) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? number : otherwise;
}

int64_t machine_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  int64_t kilobytes = 0;
  while (file >> name >> kilobytes && std::getline(file, unit)) {
    if (name == "MemAvailable:") return kilobytes * 1024;
  }
  return kUnlimited;  // a system that does not say: the allocation decides
}

}  // namespace

int64_t available_memory() {
  const int64_t limit = number_in("/sys/fs/cgroup/memory.max", kUnlimited);
  const int64_t used = number_in("/sys/fs/cgroup/memory.current", 0);
  return std::min(machine_memory(), limit == kUnlimited ? limit : std::max<int64_t>(0, limit - used));
}

std::string gigabytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g GB", static_cast<double>(bytes) / 1e9);
  return text;
}

void check_fits(const MemoryPlan& plan, int64_t available) {
  if (plan.total() <= available) return;
  throw Error("[train] memory: needs " + gigabytes(plan.total()) + " (weights " + gigabytes(plan.weights) +
              ", gradients " + gigabytes(plan.gradients) + ", moments " + gigabytes(plan.moments) + ", activations " +
              gigabytes(plan.activations) + "); available " + gigabytes(available) +
              ". A smaller micro_batch or sequence_length, or recompute = true, needs less for activations");
}

}  // namespace deltanet
