#include "train/memory_plan.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

#include "deltanet/error.h"

namespace deltanet {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// The number in the first line of a file; "max" and missing files mean no limit.
int64_t number_in(const fs::path& path, int64_t otherwise) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? number : otherwise;
}

// The number behind a name at the beginning of a line; 0: not there.
int64_t field_in(const fs::path& path, std::string_view field) {
  std::ifstream file(path);
  std::string name, rest;
  int64_t number = 0;
  while (file >> name >> number && std::getline(file, rest)) {
    if (name == field) return number;
  }
  return 0;
}

int64_t machine_memory() {
  const int64_t kilobytes = field_in("/proc/meminfo", "MemAvailable:");
  return kilobytes > 0 ? kilobytes * 1024 : kUnlimited;  // a system that does not say: the allocation decides
}

// The group of limits that this process is in (cgroups of version 2), such as a job's of a batch system.
fs::path own_group(const fs::path& root) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::/")) return line.size() > 4 ? root / line.substr(4) : root;
  }
  return root;
}

}  // namespace

int64_t available_memory() {
  int64_t available = machine_memory();
  const fs::path root = "/sys/fs/cgroup";
  for (fs::path group = own_group(root);; group = group.parent_path()) {  // limits of batch systems are further up
    const int64_t limit = number_in(group / "memory.max", kUnlimited);
    if (limit != kUnlimited) {
      // Files in the cache count as used, but are given up when something else needs the memory.
      const int64_t used = number_in(group / "memory.current", 0) - field_in(group / "memory.stat", "inactive_file");
      available = std::min(available, std::max<int64_t>(0, limit - used));
    }
    if (group == root || !group.has_relative_path()) break;
  }
  return available;
}

std::string gigabytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g GB", bytes / 1e9);
  return text;
}

void check_fits(const MemoryPlan& plan, int64_t available, int64_t of_others) {
  if (plan.total() + of_others <= available) return;
  throw Error("[train] memory: needs " + gigabytes(plan.total()) + " (weights " + gigabytes(plan.weights) +
              ", gradients " + gigabytes(plan.gradients) + ", moments " + gigabytes(plan.moments) + ", activations " +
              gigabytes(plan.activations) + ")" +
              (of_others > 0 ? ", the other processes on this machine " + gigabytes(of_others) : "") + "; available " +
              gigabytes(available) +
              ". A smaller micro_batch or sequence_length, or recompute = true, needs less for activations");
}

}  // namespace deltanet
