#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#ifdef DELTANET_OPENMP
#include <omp.h>
#endif

namespace deltanet {
namespace {

void set_openmp_threads([[maybe_unused]] int threads) {
#ifdef DELTANET_OPENMP
  omp_set_num_threads(threads);
#endif
}

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
  threads = static_cast<int>(std::min<int64_t>(threads, count));
  if (threads <= 1) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }

  std::atomic<int64_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const auto work = [&] {
    for (int64_t i = next++; i < count; i = next++) {
      try {
        body(i);
      } catch (...) {
        const std::lock_guard lock(failure_mutex);
        if (!failure) failure = std::current_exception();
        next = count;
      }
    }
  };
#ifdef DELTANET_OPENMP
#pragma omp parallel num_threads(threads)
  work();
#else
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
#endif
  if (failure) std::rethrow_exception(failure);
}

ThreadLimit::ThreadLimit(int threads) : before_(default_threads()) {
  set_openmp_threads(threads > 0 ? threads : before_);
}

ThreadLimit::~ThreadLimit() { set_openmp_threads(before_); }

}  // namespace deltanet
