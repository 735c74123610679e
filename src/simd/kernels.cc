#include "simd/kernels.h"

#include <atomic>
#include <cstdlib>

#include "deltanet/error.h"
#include "hwy/highway.h"
#include "simd/modules.h"

namespace deltanet::simd {
namespace {

struct Table {
  std::string name;
  Kernels kernels;
};

// Builds the table of every supported target once; the pointers stay valid for the life of the process.
const std::vector<Table>& tables() {
  static const std::vector<Table> all = [] {
    std::vector<Table> built;
    for (int64_t target : hwy::SupportedAndGeneratedTargets()) {  // best first
      hwy::GetChosenTarget().Update(target);
      Table table{hwy::TargetName(target), {}};
      add_gemm(table.kernels);
      add_rows(table.kernels);
      add_precond(table.kernels);
      add_precond_grad(table.kernels);
      add_diag(table.kernels);
      add_step(table.kernels);
      add_layers_norm(table.kernels);
      add_layers_gates(table.kernels);
      add_layers_conv(table.kernels);
      add_convert(table.kernels);
      add_attention(table.kernels);
      add_matvec(table.kernels);
      add_narrow(table.kernels);
      add_optimizer(table.kernels);
      add_panels(table.kernels);
      built.push_back(table);
    }
    hwy::GetChosenTarget().DeInit();
    return built;
  }();
  return all;
}

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
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
    const Table* found = find(wanted ? wanted : "");
    if (!found)
      throw Error("[DELTANET_SIMD] given \"" + std::string(wanted) + "\"; expected one of " + join(target_names()));
    return found;
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
