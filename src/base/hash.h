#pragma once

#include <cstddef>
#include <cstdint>

namespace deltanet {

inline constexpr uint64_t kEmptyHash = 0xcbf29ce484222325u;

// FNV-1a. Tells apart what differs by accident, not what someone made to look alike. `hash` continues an earlier one.
inline uint64_t hash_bytes(const void* data, std::size_t bytes, uint64_t hash = kEmptyHash) {
  for (std::size_t i = 0; i < bytes; ++i) {
    hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3u;
  }
  return hash;
}

}  // namespace deltanet
