#include "base/arena.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace deltanet {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr std::align_val_t kHugePage{2 << 20};
constexpr int64_t kGranule = 16;              // floats in 64 bytes
constexpr int64_t kPage = 1024;               // floats in 4 KiB
constexpr int64_t kSmallestBlock = 1 << 16;   // floats
constexpr int64_t kLargeBlock = 1 << 17;      // floats: from here on, ask for huge pages
constexpr int64_t kHugeFloats = 1 << 19;      // floats in a huge page
constexpr int64_t kLargestGrowth = 16 << 20;  // floats
constexpr int64_t kKeptPerThread = 64 << 20;  // floats: 256 MiB

std::atomic<bool> poison{false};

Arena& thread_arena() {
  thread_local Arena arena;
  return arena;
}

// Large scratch is touched once per pass; with 4 KiB pages the page faults and TLB misses would show in the profile.
// Only advice: where it is refused, ordinary pages serve.
void ask_for_huge_pages([[maybe_unused]] float* data, [[maybe_unused]] size_t bytes) {
#ifdef __linux__
  madvise(data, bytes / static_cast<size_t>(kHugePage) * static_cast<size_t>(kHugePage), MADV_HUGEPAGE);
#endif
}

// A block that the machine cannot hold is refused here. The system may promise it all the same and fail when it is
// touched; sanitizers end the process instead of throwing.
void check_size([[maybe_unused]] size_t bytes) {
#ifdef __linux__
  static const size_t machine =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
  if (bytes > machine) throw std::bad_alloc();
#endif
}

}  // namespace

void Arena::Free::operator()(float* p) const { ::operator delete[](p, alignment); }

void Arena::set_poison(bool on) { poison = on; }

void Arena::add_block(int64_t count) {
  // Growing by the size so far keeps the number of blocks small; what is never touched costs at most a huge page.
  int64_t size = std::max({count, kSmallestBlock, std::min(capacity_, kLargestGrowth)});
  if (size >= kLargeBlock) size = (size + kHugeFloats - 1) / kHugeFloats * kHugeFloats;
  const size_t bytes = static_cast<size_t>(size) * sizeof(float);
  check_size(bytes);
  const std::align_val_t alignment = size >= kLargeBlock ? kHugePage : kAlignment;
  float* data = static_cast<float*>(::operator new[](bytes, alignment));
  if (alignment == kHugePage) ask_for_huge_pages(data, bytes);
  blocks_.push_back({std::unique_ptr<float[], Free>(data, Free{alignment}), size});
  capacity_ += size;
  used_ = 0;
}

float* Arena::take(int64_t count) {
  count = (count + kGranule - 1) / kGranule * kGranule;
  // Matrices of a chunk are whole pages; without a gap, the same element of all of them would fall into one cache set.
  if (count % kPage == 0) count += kGranule;
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
