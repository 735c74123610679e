#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>

// Counts what passes through operator new, which this header replaces: for one source file of a program.

namespace deltanet::test {

inline std::atomic<int64_t> allocations{0}, allocated_bytes{0};

// The least that `run` allocates, of up to a hundred times: which thread takes which part is chance, and one that had
// nothing to do so far gets its scratch memory later.
template <class Run>
int64_t least_allocated(const std::atomic<int64_t>& counter, int64_t enough, const Run& run) {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < 100 && least > enough; ++i) {
    const int64_t before = counter;
    run();
    least = std::min(least, counter - before);
  }
  return least;
}

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
