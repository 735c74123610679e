#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deltanet/reference.h"
#include "recurrence/reference.h"

// The arguments of the float64 reference: what a row reads and writes. The fast path has checks of its own (args.cc).

namespace deltanet::reference {

// Sizes from the shapes of q and v and from cu_seqlens.
Dims read_dims(const Spec& spec, const Arrays& inputs);

// Every input that the row needs is there, nothing else is, and the shapes fit.
void check_inputs(const Spec& spec, const Arrays& inputs, const Dims& dims);

struct Output {
  std::string name;
  std::vector<int64_t> shape;
};
std::vector<Output> outputs_of(const Spec& spec, const Dims& dims);

// Every upstream gradient has the name and the shape of an output.
void check_upstream(const Arrays& upstream, const std::vector<Output>& outputs);

}  // namespace deltanet::reference
