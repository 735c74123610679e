#pragma once

#include "simd/kernels.h"

// Each kernel file fills its part of the table for Highway's chosen target.

namespace deltanet::simd {

void add_gemm(Kernels& table);
void add_rows(Kernels& table);
void add_precond(Kernels& table);
void add_precond_grad(Kernels& table);
void add_diag(Kernels& table);
void add_step(Kernels& table);
void add_layers_norm(Kernels& table);
void add_layers_gates(Kernels& table);
void add_layers_conv(Kernels& table);
void add_convert(Kernels& table);
void add_attention(Kernels& table);
void add_matvec(Kernels& table);
void add_narrow(Kernels& table);
void add_optimizer(Kernels& table);
void add_panels(Kernels& table);

}  // namespace deltanet::simd
