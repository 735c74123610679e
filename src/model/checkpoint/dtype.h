#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// Number types of tensors in files, and their conversion to and from float.

namespace deltanet {

// In the order in which the safetensors library ranks them: files hold the last of these first.
enum class DType { kBool, kU8, kI8, kI16, kF16, kBf16, kI32, kF32, kF64, kI64, kUnsupported };

int64_t dtype_bytes(DType dtype);          // of one value
std::string_view dtype_name(DType dtype);  // as safetensors writes it: "BF16"
DType dtype_of(std::string_view name);     // kUnsupported for any other name
bool is_floating(DType dtype);             // F64, F32, F16, BF16

// x -> y, [count] each, on up to `threads` threads (0: all). The bytes are a floating dtype in the machine's order.
// Both sides may be at any address.
void to_floats(DType dtype, int64_t count, const std::byte* x, float* y, int threads = 0);
void from_floats(DType dtype, int64_t count, const float* x, std::byte* y, int threads = 0);

}  // namespace deltanet
