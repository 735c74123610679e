#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "deltanet/rows.h"

// The float64 definition of every row, token by token and written for reading. It is the truth that the fast path is
// tested against, and deliberately shares no code with it.

namespace deltanet {

struct Array {
  std::vector<int64_t> shape;
  std::vector<double> data;
};

// Keyed by the argument names of recurrence.h ("q", "g_atk", "S0", ...; "cu_seqlens" too).
using Arrays = std::map<std::string, Array>;

// Returns "o", "S_final" and, where the row has them, "A_final", "P_final", "G_final".
Arrays reference_forward(const Spec& spec, const Arrays& inputs);

// upstream: "do", "dS_final", ... (absent means zero). Returns the gradient of every input under the input's name,
// by automatic differentiation of reference_forward.
Arrays reference_backward(const Spec& spec, const Arrays& inputs, const Arrays& upstream);

}  // namespace deltanet
