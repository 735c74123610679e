#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace deltanet {
namespace {

TEST(ParallelFor, VisitsEveryItemOnce) {
  for (const int threads : {1, 2, 5}) {
    std::vector<std::atomic<int>> visits(97);
    parallel_for(threads, 97, [&](int64_t i) { ++visits[static_cast<std::size_t>(i)]; });
    for (const auto& count : visits) EXPECT_EQ(count, 1);
  }
}

#ifdef DELTANET_OPENMP
std::atomic<int> kept_made{0};

struct Kept {
  Kept() { ++kept_made; }
  int uses = 0;
};

thread_local Kept kept;

// What a thread keeps, such as compiled products, would be lost with it.
TEST(ParallelFor, FewItemsEndNoThread) {
  constexpr int kThreads = 5;
  const auto use_all_threads = [&] {
    std::atomic<int> arrived{0};
    parallel_for(kThreads, kThreads, [&](int64_t) {
      ++kept.uses;
      ++arrived;
      while (arrived < kThreads) std::this_thread::yield();  // so that nobody takes a second item
    });
  };
  use_all_threads();
  EXPECT_EQ(kept_made, kThreads);
  for (const int64_t count : {2, 1, 3}) parallel_for(kThreads, count, [&](int64_t) { ++kept.uses; });
  use_all_threads();
  EXPECT_EQ(kept_made, kThreads);
}
#endif

#ifdef DELTANET_OPENMP
TEST(ThreadLimit, EndsWithItsScope) {
  const int before = default_threads();
  {
    const ThreadLimit outer(before + 2);
    EXPECT_EQ(default_threads(), before + 2);
    {
      const ThreadLimit inner(1);
      EXPECT_EQ(inner.threads(), 1);
      EXPECT_EQ(default_threads(), 1);
    }
    EXPECT_EQ(default_threads(), before + 2);
    EXPECT_EQ(ThreadLimit(0).threads(), before + 2);
  }
  EXPECT_EQ(default_threads(), before);
}
#endif

// The first exception ends the loop and reaches the caller; the next loop is a new one.
TEST(ParallelFor, ThrowsWhatTheBodyThrows) {
  for (const int threads : {1, 3}) {
    EXPECT_THROW(parallel_for(threads, 50,
                              [](int64_t i) {
                                if (i == 7) throw std::runtime_error("item 7");
                              }),
                 std::runtime_error);
    std::atomic<int> visits{0};
    parallel_for(threads, 50, [&](int64_t) { ++visits; });
    EXPECT_EQ(visits, 50);
  }
}

TEST(ParallelShares, VisitsEveryItemOfEveryShareOnce) {
  for (const int threads : {1, 2, 5}) {
    for (const int64_t count : {0, 1, 7, 1000}) {
      for (const int64_t least : {1, 3, 5000}) {
        std::vector<std::atomic<int>> visits(static_cast<std::size_t>(threads * count));
        parallel_shares(threads, threads, count, least, [&](int64_t share, int64_t begin, int64_t end) {
          EXPECT_LT(begin, end);
          for (int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(share * count + i)];
        });
        for (const auto& times : visits) ASSERT_EQ(times, 1) << threads << " threads, " << count << " by " << least;
      }
    }
  }
}

TEST(ParallelShares, MayBeFewerThanThreadsOrMore) {
  for (const auto& [threads, shares] : {std::pair{5, 3}, std::pair{2, kMaxShares}}) {
    std::atomic<int64_t> items{0}, last{0};
    parallel_shares(threads, shares, 10, 1, [&](int64_t share, int64_t begin, int64_t end) {
      items += end - begin;
      for (int64_t seen = last; seen < share && !last.compare_exchange_weak(seen, share);) {
      }
    });
    EXPECT_EQ(items, shares * 10);
    EXPECT_EQ(last, shares - 1);
  }
}

TEST(ParallelShares, ThrowsWhatTheBodyThrows) {
  const auto fail = [](int64_t share, int64_t, int64_t) {
    if (share == 1) throw std::runtime_error("share 1");
  };
  EXPECT_THROW(parallel_shares(2, 2, 100, 1, fail), std::runtime_error);
}

}  // namespace
}  // namespace deltanet
