#pragma once

#include <string_view>

#include "deltanet/recurrence.h"

// The tables of arguments, and the checks that every call makes before it touches memory.

namespace deltanet {

// `operation` opens every error text.
Shape check_inputs(std::string_view operation, const Spec& spec, const Inputs& inputs);
// Every tensor that is present must have the shape of its namesake, prefix + name in error texts.
void check_outputs(std::string_view operation, std::string_view prefix, const Spec& spec, const Shape& shape,
                   const OutputGradients& outputs);
void check_gradients(std::string_view operation, const Spec& spec, const Shape& shape, const Inputs& inputs,
                     const InputGradients& gradients);
// Options::writes, if it is there.
void check_writes(std::string_view operation, const Spec& spec, const Shape& shape, const Options& options);
// NaN, infinities, positive log decays. `writes`: those that backward is handed, or none.
void check_values(std::string_view operation, const Inputs& inputs, const ConstTensor& writes = {});

}  // namespace deltanet
