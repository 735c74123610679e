// Signals during products change nothing. Code that moves the stack pointer away from the stack does not survive this:
// the frame of a signal is written where it points.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>

#include <chrono>
#include <vector>

#include "nn/linear.h"
#include "nn/matmul/onednn.h"
#include "nn/quantize.h"

namespace deltanet::nn {
namespace {

volatile sig_atomic_t received = 0;

// While it lives, a signal arrives every 50 microseconds.
class Interruptions {
 public:
  Interruptions() {
    struct sigaction action {};
    action.sa_handler = [](int) { received = received + 1; };
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, &before_);
    const itimerval often{{0, 50}, {0, 50}};
    setitimer(ITIMER_REAL, &often, nullptr);
  }
  ~Interruptions() {
    const itimerval never{};
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &before_, nullptr);
  }
  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;

 private:
  struct sigaction before_ {};
};

constexpr int64_t kRows = 160, kOut = 192, kIn = 128;

std::vector<float> numbers(int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7 % 31) - 15;
  return values;
}

struct Products {
  std::vector<float> y, dx, dw = std::vector<float>(kOut * kIn);
  bool operator==(const Products&) const = default;
};

struct Call {
  Weight weight;
  int64_t in, out;  // row distances of x and dx, and of y and dy
  int threads;
};

Products products(const Call& call, const std::vector<float>& x, const std::vector<float>& dy) {
  const auto [weight, in, out, threads] = call;
  Products p;
  p.y.resize(static_cast<std::size_t>(kRows * out));
  p.dx.resize(static_cast<std::size_t>(kRows * in));
  linear({x.data(), in}, kRows, weight, nullptr, p.y.data(), out, false, threads);
  if (weight.type == WeightType::kInt8) return p;
  linear_backward_input({dy.data(), out}, kRows, weight, p.dx.data(), in, false, threads);
  linear_backward_weight({dy.data(), out}, {x.data(), in}, kRows, weight.type, p.dw.data(), true, kOut, kIn, nullptr,
                         threads);
  return p;
}

// Long enough for many signals, also where other programs keep the cores busy.
template <class Compute>
void expect_undisturbed(const Compute& compute) {
  const auto expected = compute();
  received = 0;
  const Interruptions signals;
  const auto begin = std::chrono::steady_clock::now();
  const auto after = [&] { return std::chrono::steady_clock::now() - begin; };
  while (after() < std::chrono::milliseconds(700) || (received < 300 && after() < std::chrono::seconds(20))) {
    ASSERT_TRUE(compute() == expected);
  }
  EXPECT_GE(received, 300);
}

void expect_undisturbed(const Call& call) {
  const std::vector<float> x = numbers(kRows * call.in), dy = numbers(kRows * call.out);
  expect_undisturbed([&] { return products(call, x, dy); });
}

TEST(LinearSignals, ProductsAreNotDisturbed) {
  const std::vector<float> wide = numbers(kOut * kIn);
  std::vector<uint16_t> narrow(wide.size());
  to_bfloat16(wide.data(), kOut, kIn, narrow.data(), 1);
  std::vector<int8_t> levels(wide.size());
  std::vector<float> scales(kOut);
  to_int8(wide.data(), kOut, kIn, levels.data(), scales.data(), 1);
  for (const Weight& weight : {Weight{WeightType::kFloat32, wide.data(), nullptr, kOut, kIn},
                               Weight{WeightType::kBfloat16, narrow.data(), nullptr, kOut, kIn},
                               Weight{WeightType::kInt8, levels.data(), scales.data(), kOut, kIn}}) {
    for (const int threads : {1, 2}) {
      // Dense, and as in models: oneDNN has different code for the two, here for gradients of weights.
      expect_undisturbed({weight, kIn, kOut, threads});
      expect_undisturbed({weight, wide_ld(kIn), wide_ld(kOut), threads});
    }
  }
}

// oneDNN's forward products of rows that are not dense, which models no longer ask for, take the same code.
TEST(LinearSignals, OneDnnIsNotDisturbed) {
  const std::vector<float> x = numbers(kRows * wide_ld(kIn)), w = numbers(kOut * kIn);
  for (const int threads : {1, 2}) {
    expect_undisturbed([&] {
      std::vector<float> y(kRows * wide_ld(kOut));
      onednn_matmul({.m = kRows,
                     .n = kOut,
                     .depth = kIn,
                     .a = x.data(),
                     .lda = wide_ld(kIn),
                     .b = w.data(),
                     .ldb = kIn,
                     .b_transposed = true,
                     .c = y.data(),
                     .ldc = wide_ld(kOut)},
                    threads);
      return y;
    });
  }
}

// Signals wait for the end of a product at most.
TEST(LinearSignals, ArriveAfterwards) {
  const std::vector<float> x = numbers(kRows * wide_ld(kIn)), dy = numbers(kRows * wide_ld(kOut));
  std::vector<float> dw(kOut * kIn);
  sigset_t before, after;
  pthread_sigmask(SIG_BLOCK, nullptr, &before);
  linear_backward_weight({dy.data(), wide_ld(kOut)}, {x.data(), wide_ld(kIn)}, kRows, WeightType::kFloat32, dw.data(),
                         false, kOut, kIn, nullptr, 2);
  pthread_sigmask(SIG_BLOCK, nullptr, &after);
  for (int number = 1; number < NSIG; ++number) EXPECT_EQ(sigismember(&after, number), sigismember(&before, number));
}

}  // namespace
}  // namespace deltanet::nn
