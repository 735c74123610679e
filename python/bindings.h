#pragma once

#include <nanobind/nanobind.h>

// The parts of the compiled module, one file each.

namespace deltanet {

void bind_model(nanobind::module_& m);
void bind_ops(nanobind::module_& m);
void bind_short_conv(nanobind::module_& m);
void bind_tokenizer(nanobind::module_& m);

}  // namespace deltanet
