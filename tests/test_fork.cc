// Threads after fork(): a child has none of its parent's, and must not wait for them.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "base/parallel.h"
#include "nn/matmul/onednn.h"

namespace deltanet {
namespace {

// Whether `body` is true in a child. A child that hangs is ended, which is false.
bool holds_in_child(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Two items that each wait for the other to begin, for a while.
bool two_at_a_time() {
  std::atomic<int> arrived{0};
  parallel_for(2, 2, [&](int64_t) {
    ++arrived;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (arrived < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  });
  return arrived == 2;
}

std::vector<float> product() {
  constexpr int64_t kSize = 192;
  std::vector<float> a(kSize * kSize), c(kSize * kSize);
  std::iota(a.begin(), a.end(), 0.0f);
  nn::onednn_matmul({.m = kSize,
                     .n = kSize,
                     .depth = kSize,
                     .a = a.data(),
                     .lda = kSize,
                     .b = a.data(),
                     .ldb = kSize,
                     .c = c.data(),
                     .ldc = kSize},
                    2);
  return c;
}

TEST(Fork, AChildUsesThreadsOfItsOwn) {
  ASSERT_TRUE(two_at_a_time());
  EXPECT_TRUE(holds_in_child(two_at_a_time));
  EXPECT_TRUE(holds_in_child([] { return two_at_a_time() && holds_in_child(two_at_a_time); }));
  EXPECT_TRUE(two_at_a_time());
}

#ifdef DELTANET_OPENMP  // otherwise oneDNN's threads are not ours to limit
TEST(Fork, AChildMultiplies) {
  const std::vector<float> expected = product();
  EXPECT_TRUE(holds_in_child([&] { return product() == expected; }));
}
#endif

TEST(Fork, AChildThrowsWhatABodyThrows) {
  ASSERT_TRUE(two_at_a_time());
  EXPECT_TRUE(holds_in_child([] {
    try {
      parallel_for(2, 10, [](int64_t i) {
        if (i == 3) throw 3;
      });
    } catch (int thrown) {
      return thrown == 3;
    }
    return false;
  }));
}

}  // namespace
}  // namespace deltanet
