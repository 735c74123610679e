#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deltanet/recurrence.h"

// What is benchmarked.

namespace deltanet::bench {

struct BenchRow {
  std::string label;
  Spec spec;
};

inline constexpr char kBaseline[] = "gdn";

// pgdn without its preconditioner: gdn whose write key is kept apart from its read key.
inline constexpr char kDistinctKeys[] = "pgdn_identity";

// The labels that the kernel benchmark runs unless told otherwise.
std::vector<std::string> default_bench_labels();

// Throws Error for a name that is not a row.
BenchRow bench_row(const std::string& label, bool l2norm);

// Floating-point operations of one forward pass, a multiply-add counted as two; see bench/README.md. Absent where the
// work depends on the data (MesaNet's conjugate gradients).
std::optional<double> forward_flops(const Spec& spec, const Shape& shape);
// Forward and backward. Every product has two gradients of its own size; what backward recomputes is not counted.
std::optional<double> training_flops(const Spec& spec, const Shape& shape);

}  // namespace deltanet::bench
