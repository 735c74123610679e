#pragma once

#include <cstdint>

// Conversions between float and the 16-bit formats of checkpoints and products. Unlike other kernels these take any
// count and any address, because they read and write files in memory.

namespace deltanet::simd {

// x and y: [count]; the 16-bit side is given as bytes in the machine's order. Rounding is to the nearest, ties to even;
// what is too large becomes infinite; NaN stays NaN with its sign and the upper bits of its payload. But for
// scaled_to_bf16, the results have the same bits on all SIMD targets. Conversions to 16 bits may be in place, y == x.
struct ConvertKernels {
  void (*f16_to_f32)(int64_t count, const void* x, float* y);
  void (*bf16_to_f32)(int64_t count, const void* x, float* y);
  void (*f32_to_f16)(int64_t count, const float* x, void* y);
  void (*f32_to_bf16)(int64_t count, const float* x, void* y);
  // scale x in bfloat16, for products: a subnormal number may become zero, which is what the instruction that
  // multiplies such numbers takes it for.
  void (*scaled_to_bf16)(int64_t count, float scale, const float* x, void* y);
};

}  // namespace deltanet::simd
