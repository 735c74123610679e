// config.json from anywhere: either an Error, or a layout whose sizes fit together.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "deltanet/error.h"
#include "model/config/config.h"
#include "model/layout.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const deltanet::Config config = deltanet::parse_config({reinterpret_cast<const char*>(data), size}, "fuzz");
    constexpr int64_t kFew = 64;  // a long list of layers only takes time
    if (config.num_hidden_layers > kFew) return 0;
    const deltanet::Layout layout(config);
    if (layout.parameter_count() <= 0 || layout.parameter_count() > layout.matrices_size() + layout.vectors_size()) {
      std::abort();
    }
    // What we write, we read again, and it means the same.
    deltanet::Config fresh = config;
    fresh.source.clear();
    const deltanet::Config again = deltanet::parse_config(deltanet::config_text(fresh, "float32"), "written");
    if (deltanet::Layout(again).parameter_count() != layout.parameter_count()) std::abort();
  } catch (const deltanet::Error&) {
  }
  return 0;
}
