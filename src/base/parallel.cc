#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/interrupt.h"

#ifdef DELTANET_OPENMP
#include <omp.h>
#include <pthread.h>
#endif

namespace deltanet {
namespace {

// Of a process only the thread that calls fork() lives on in the child, but OpenMP still counts on its other threads.
bool forked = false;
#ifdef DELTANET_OPENMP
[[maybe_unused]] const int kWatchesFork = pthread_atfork(nullptr, nullptr, [] { forked = true; });
#endif

void set_openmp_threads([[maybe_unused]] int threads) {
#ifdef DELTANET_OPENMP
  omp_set_num_threads(threads);
#endif
}

// Calls work() on up to `threads` threads; one for each of `count` items is enough.
template <class Work>
void run_team(int threads, int64_t count, const Work& work) {
#ifdef DELTANET_OPENMP
  if (!forked) {
    // Also for fewer items: OpenMP ends the threads that a smaller team leaves out, and what they keep with them.
#pragma omp parallel num_threads(threads)
    work();
    return;
  }
#endif
  std::vector<std::thread> others;
  try {
    for (int64_t t = 1; t < std::min<int64_t>(threads, count); ++t) others.emplace_back(work);
  } catch (const std::system_error&) {  // the system has no more threads: those that there are do the work
  }
  work();
  for (std::thread& other : others) other.join();
}

// The items [begin, end) that nobody has taken yet.
class Share {
 public:
  struct Part {
    int64_t begin, end;
  };

  void fill(int64_t count) { left_ = static_cast<uint64_t>(count); }

  // A quarter of what is left, but at least `least` items; none when there are none left.
  Part take_front(int64_t least) {
    return take([&](Part all) { return Part{all.begin, std::min(all.begin + size(all, least), all.end)}; });
  }
  Part take_back(int64_t least) {
    return take([&](Part all) { return Part{std::max(all.end - size(all, least), all.begin), all.end}; });
  }

 private:
  static int64_t size(Part all, int64_t least) { return std::max(least, (all.end - all.begin) / 4); }

  template <class Choose>
  Part take(const Choose& choose) {
    uint64_t left = left_.load();
    for (;;) {
      const Part all{static_cast<int64_t>(left >> 32), static_cast<int64_t>(left & 0xffffffffu)};
      const Part part = choose(all);
      const Part rest = part.begin == all.begin ? Part{part.end, all.end} : Part{all.begin, part.begin};
      const uint64_t packed = static_cast<uint64_t>(rest.begin) << 32 | static_cast<uint64_t>(rest.end);
      if (left_.compare_exchange_weak(left, packed)) return part;
    }
  }

  alignas(64) std::atomic<uint64_t> left_{0};  // begin and end, 32 bits each: both change at once
};

}  // namespace

int default_threads() {
#ifdef DELTANET_OPENMP
  return omp_get_max_threads();
#else
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
#endif
}

void run_parallel(int threads, int64_t count, const std::function<void(int64_t)>& body) {
  if (threads <= 0) threads = default_threads();
  if (threads == 1 || count <= 1) {
    for (int64_t i = 0; i < count; ++i) {
      check_interrupt();
      body(i);
    }
    return;
  }

  std::atomic<int64_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  Interrupt* const interrupt = current_interrupt;
  const auto work = [&] {
    const InterruptScope scope(interrupt);
    for (int64_t i = next++; i < count; i = next++) {
      try {
        check_interrupt();
        body(i);
      } catch (...) {
        const std::lock_guard lock(failure_mutex);
        if (!failure) failure = std::current_exception();
        next = count;
      }
    }
  };
  run_team(threads, count, work);
  if (failure) std::rethrow_exception(failure);
}

void run_shares(int threads, int shares, int64_t count, int64_t least,
                const std::function<void(int64_t, int64_t, int64_t)>& body) {
  assert(shares >= 1 && shares <= kMaxShares && count >= 0 && count <= 0xffffffff && least >= 1);
  if (shares == 1) {
    if (count > 0) body(0, 0, count);
    return;
  }
  Share left[kMaxShares];
  for (int share = 0; share < shares; ++share) left[share].fill(count);
  parallel_for(threads, shares, [&](int64_t own) {
    for (int64_t i = 0; i < shares; ++i) {
      const int64_t share = (own + i) % shares;
      for (;;) {
        const Share::Part part = i == 0 ? left[share].take_front(least) : left[share].take_back(least);
        if (part.begin == part.end) break;
        check_interrupt();
        body(share, part.begin, part.end);
      }
    }
  });
}

ThreadLimit::ThreadLimit(int threads)
    : before_(default_threads()),
      threads_(forked        ? 1
               : threads > 0 ? threads
                             : before_) {
  set_openmp_threads(threads_);
}

ThreadLimit::~ThreadLimit() { set_openmp_threads(before_); }

}  // namespace deltanet
