// Any bytes as a tokenizer.json: it is refused with an Error, or it encodes and decodes.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "data/tokenizer/loaders.h"
#include "deltanet/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto tokenizer =
        deltanet::data::tokenizer_from_json({reinterpret_cast<const char*>(data), size}, "tokenizer.json");
    const auto ids = tokenizer->encode("It's 3 <s> caf\xC3\xA9s,\n  \xE2\x96\x81 \xFF!", true);
    tokenizer->decode(ids);
  } catch (const deltanet::Error&) {
  }
  return 0;
}
