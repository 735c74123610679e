#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "deltanet/runtime.h"

namespace deltanet {

// Calls body(0) ... body(count-1), each once, on up to `threads` threads (0: default_threads()). Items are handed out
// one by one in order, so long ones should come first. The first exception is rethrown here after all threads have
// stopped; between items an Interrupt of the caller (base/interrupt.h) may throw one. Calls with the same number of
// threads find the same threads again, with all they keep (thread_local), except in a child of fork(), where every call
// starts threads of its own.
template <class Body>
void parallel_for(int threads, int64_t count, const Body& body);

// Calls body(begin, end) for each block of [0, count), like parallel_for; the last block may be shorter.
template <class Body>
void parallel_blocks(int threads, int64_t count, int64_t block, const Body& body) {
  parallel_for(threads, (count + block - 1) / block,
               [&](int64_t i) { body(i * block, std::min(count, (i + 1) * block)); });
}

// Calls body(share, begin, end) for parts of [0, count) of each of 1 to kMaxShares shares, usually as many as threads
// or fewer. A thread goes through its own share from front to back, so that it reads memory in long runs, in parts that
// become smaller down to `least`; then it takes parts from the ends of the other shares. `count` is below 2^32, `least`
// at least 1.
template <class Body>
void parallel_shares(int threads, int shares, int64_t count, int64_t least, const Body& body);

inline constexpr int kMaxShares = 128;

void run_parallel(int threads, int64_t count, const std::function<void(int64_t)>& body);
void run_shares(int threads, int shares, int64_t count, int64_t least,
                const std::function<void(int64_t, int64_t, int64_t)>& body);

template <class Body>
void parallel_for(int threads, int64_t count, const Body& body) {
  // By reference: a std::function would put a copy of a lambda that captures much on the heap, in every decode step.
  run_parallel(threads, count, std::cref(body));
}

template <class Body>
void parallel_shares(int threads, int shares, int64_t count, int64_t least, const Body& body) {
  run_shares(threads, shares, count, least, std::cref(body));
}

// Limits the threads of libraries that run OpenMP regions of their own, as long as it lives and on the calling thread
// only (0: default_threads()). Without OpenMP here there is nothing to limit: such a library follows its environment.
// In a child of fork() they get one thread: a team would wait for the threads of the parent for ever.
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads);
  ~ThreadLimit();
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

  int threads() const { return threads_; }  // what is allowed

 private:
  int before_, threads_;
};

}  // namespace deltanet
