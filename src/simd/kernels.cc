#include "simd/kernels.h"

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>

#include "hwy/highway.h"
#include "simd/modules.h"

namespace deltanet::simd {
namespace {

struct Table {
  std::string name;
  Kernels kernels;
};

std::vector<int64_t> targets_best_first() {
  std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();  // lower bits are better targets
  return targets;
}

// Builds the table of every supported target once; the pointers stay valid for the life of the process.
const std::vector<Table>& tables() {
  static const std::vector<Table> all = [] {
    std::vector<Table> built;
    for (int64_t target : targets_best_first()) {
      hwy::GetChosenTarget().Update(target);
      Table table{hwy::TargetName(target), {}};
      add_gemm(table.kernels);
      add_rows(table.kernels);
      add_precond(table.kernels);
      add_diag(table.kernels);
      add_step(table.kernels);
      built.push_back(table);
    }
    hwy::GetChosenTarget().DeInit();
    return built;
  }();
  return all;
}

const Table* find(std::string_view name) {
  for (const Table& table : tables()) {
    if (table.name == name || name.empty()) return &table;
  }
  return nullptr;
}

std::atomic<const Table*>& selected() {
  static std::atomic<const Table*> table = [] {
    const char* wanted = std::getenv("DELTANET_SIMD");
    const Table* found = wanted ? find(wanted) : nullptr;
    return found ? found : find("");
  }();
  return table;
}

}  // namespace

const Kernels& kernels() { return selected().load(std::memory_order_acquire)->kernels; }

std::vector<std::string> target_names() {
  std::vector<std::string> names;
  for (const Table& table : tables()) names.push_back(table.name);
  return names;
}

std::string target_name() { return selected().load(std::memory_order_acquire)->name; }

bool select_target(std::string_view name) {
  const Table* found = find(name);
  if (found) selected().store(found, std::memory_order_release);
  return found != nullptr;
}

}  // namespace deltanet::simd
