// Files of safetensors: any bytes either throw Error or give tensors that lie in the data, each byte in exactly one.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "deltanet/error.h"
#include "model/checkpoint/safetensors.h"

namespace {

using namespace deltanet;

void check(bool condition) {
  if (!condition) std::abort();
}

void use(std::span<const std::byte> bytes) {
  try {
    const SafetensorsFile file(bytes, "input");
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    const std::span<const std::byte> data = bytes.subspan(sizeof length + length);
    std::vector<bool> taken(data.size());
    for (const StoredTensor& tensor : file.tensors()) {
      check(file.find(tensor.name) == &tensor);
      check(tensor.data >= data.data() && tensor.data + tensor.bytes <= data.data() + data.size());
      for (int64_t i = 0; i < tensor.bytes; ++i) {
        std::vector<bool>::reference byte = taken[static_cast<size_t>(tensor.data - data.data() + i)];
        check(!byte);
        byte = true;
      }
      if (!is_floating(tensor.dtype)) continue;
      std::vector<float> values(static_cast<size_t>(tensor.count()));
      copy_floats(tensor, values.data(), 1);
    }
    check(std::find(taken.begin(), taken.end(), false) == taken.end());
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  use(bytes);
  // Most changes make the header's length wrong, which hides everything behind it: try again with the header ending at
  // the last brace.
  std::vector<std::byte> repaired(bytes.begin(), bytes.end());
  const auto brace = std::find(repaired.rbegin(), repaired.rend(), std::byte{'}'});
  const uint64_t end = static_cast<uint64_t>(repaired.rend() - brace);
  if (end > sizeof end) {
    const uint64_t length = end - sizeof end;
    std::memcpy(repaired.data(), &length, sizeof length);
    use(repaired);
  }
  return 0;
}
