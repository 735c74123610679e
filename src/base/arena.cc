#include "base/arena.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace deltanet {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr int64_t kGranule = 16;                  // floats in 64 bytes
constexpr int64_t kSmallestBlock = 1 << 16;       // floats
constexpr int64_t kLargeBlock = 1 << 20;          // floats: from here on, ask for huge pages
constexpr int64_t kKeptPerThread = 8 << 20;       // floats: 32 MiB

std::atomic<bool> poison{false};

Arena& thread_arena() {
  thread_local Arena arena;
  return arena;
}

// Large scratch is touched once per pass; with 4 KiB pages the page faults would show in the profile.
void ask_for_huge_pages([[maybe_unused]] float* data, [[maybe_unused]] int64_t count) {
#ifdef __linux__
  constexpr uintptr_t kPage = 4096;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + kPage - 1) / kPage * kPage;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + static_cast<size_t>(count) * sizeof(float)) / kPage * kPage;
  // Only advice: where it is refused, ordinary pages serve.
  if (end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

}  // namespace

void Arena::Free::operator()(float* p) const { ::operator delete[](p, kAlignment); }

void Arena::set_poison(bool on) { poison = on; }

void Arena::add_block(int64_t count) {
  // Growing by the size so far keeps the number of blocks small.
  const int64_t size = std::max({count, kSmallestBlock, std::min(capacity_, kLargeBlock)});
  float* data = static_cast<float*>(::operator new[](static_cast<size_t>(size) * sizeof(float), kAlignment));
  if (size >= kLargeBlock) ask_for_huge_pages(data, size);
  blocks_.push_back({std::unique_ptr<float[], Free>(data), size});
  capacity_ += size;
  used_ = 0;
}

float* Arena::take(int64_t count) {
  count = (count + kGranule - 1) / kGranule * kGranule;
  if (blocks_.empty() || used_ + count > blocks_.back().size) add_block(count);
  float* piece = blocks_.back().data.get() + used_;
  used_ += count;
  if (poison) std::fill_n(piece, count, std::numeric_limits<float>::quiet_NaN());
  return piece;
}

float* Arena::take_zeros(int64_t count) {
  float* piece = take(count);
  std::fill_n(piece, count, 0.0f);
  return piece;
}

void Arena::reset() {
  if (blocks_.size() > 1) {
    // One block of the total size serves the next round without growing.
    const int64_t total = capacity_;
    release();
    add_block(total);
  }
  used_ = 0;
}

void Arena::release() {
  blocks_.clear();
  used_ = 0;
  capacity_ = 0;
}

TaskArena::TaskArena() : arena_(thread_arena()) { arena_.reset(); }

TaskArena::~TaskArena() {
  if (arena_.capacity() > kKeptPerThread) arena_.release();
}

}  // namespace deltanet
