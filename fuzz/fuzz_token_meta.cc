// meta.json of a corpus of tokens, from anywhere: either an Error, or counts that fit together.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "data/corpus/shards.h"
#include "deltanet/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deltanet::data;
  try {
    const ShardMeta meta = meta_from_json({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (meta.largest_id >= meta.vocab_size || meta.documents() > meta.tokens()) std::abort();
    if ((meta.largest_id < 0) != meta.shards.empty()) std::abort();
    // What we write, we read again, and it means the same.
    if (meta_to_json(meta_from_json(meta_to_json(meta), "written")) != meta_to_json(meta)) std::abort();
  } catch (const deltanet::Error&) {
  }
  return 0;
}
