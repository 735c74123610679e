#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

// Counts what passes through operator new, which this header replaces: for one source file of a program.

namespace deltanet::test {

inline std::atomic<int64_t> allocations{0}, allocated_bytes{0};

inline void* counted(std::size_t size, std::size_t alignment) {
  ++allocations;
  allocated_bytes += static_cast<int64_t>(size);
  void* p = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (!p) throw std::bad_alloc();
  return p;
}

inline constexpr std::size_t kDefaultAlignment = alignof(std::max_align_t);

}  // namespace deltanet::test

void* operator new(std::size_t size) { return deltanet::test::counted(size, deltanet::test::kDefaultAlignment); }
void* operator new[](std::size_t size) { return deltanet::test::counted(size, deltanet::test::kDefaultAlignment); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return deltanet::test::counted(size, std::size_t(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return deltanet::test::counted(size, std::size_t(alignment));
}
// Not inlined: the compiler would take the pair of operator new and std::free for a mistake.
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
