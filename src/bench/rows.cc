#include "bench/rows.h"

#include "recurrence/preconditioners.h"
#include "simd/kernels.h"

namespace deltanet::bench {
std::vector<std::string> default_bench_labels() {
  return {kBaseline, "pgdn", kDistinctKeys, "kda", "pkda", "dplr", "mesa", "linear_attn"};
}

BenchRow bench_row(const std::string& label, bool l2norm) {
  BenchRow row{label, find_row(label).spec};
  row.spec.l2norm = l2norm;
  return row;
}

std::optional<double> forward_flops(const Spec& spec, const Shape& shape) {
  if (does(spec, Operation::kMesa) || does(spec, Operation::kBlock)) return std::nullopt;
  const auto K = static_cast<double>(shape.K), V = static_cast<double>(shape.V);
  const auto H = static_cast<double>(shape.H), U = static_cast<double>(shape.U);
  constexpr double C = simd::kChunk;
  const bool erases = spec.solve != Solve::kOffline;
  const double write_keys = spec.solve == Solve::kDplr && spec.tying != Tying::kBEqK ? 2 : 1;
  const double reads = erases ? 2 : 1;

  // With the state: every read key and every write key, 2 K V each.
  double flops = U * 2 * K * V * (reads + write_keys);
  // Inside the chunk, per token: the query meets the (C+1)/2 tokens up to it, the erase key the (C-1)/2 before it; once
  // along K for the interactions, once along V for what they carry. A scalar decay shares the first over a group.
  const double pairs = (C + 1) / 2 + (erases ? (C - 1) / 2 : 0);
  const bool per_value_head = spec.decay == Decay::kDiag || write_keys == 2;
  flops += write_keys * pairs * 2 * ((per_value_head ? U : H) * K + U * V);
  if (carries(spec, Carried::kInverseGram)) flops += H * 4 * K * K;  // P k, and the update of P
  return flops * static_cast<double>(shape.B * shape.T);
}

std::optional<double> training_flops(const Spec& spec, const Shape& shape) {
  const std::optional<double> forward = forward_flops(spec, shape);
  return forward ? std::optional<double>(3 * *forward) : std::nullopt;
}

}  // namespace deltanet::bench
