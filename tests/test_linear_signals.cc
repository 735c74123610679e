// Signals during products change nothing. Code that moves the stack pointer away from the stack does not survive this:
// the frame of a signal is written where it points.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>

#include <chrono>
#include <vector>

#include "nn/linear.h"
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
  std::vector<float> y = std::vector<float>(kRows * kOut), dx = std::vector<float>(kRows * kIn);
  std::vector<float> dw = std::vector<float>(kOut * kIn);
  bool operator==(const Products&) const = default;
};

Products products(const Weight& weight, const std::vector<float>& x, const std::vector<float>& dy) {
  Products p;
  linear({x.data(), kIn}, kRows, weight, nullptr, p.y.data(), kOut, false, 1);
  linear_backward_input({dy.data(), kOut}, kRows, weight, p.dx.data(), kIn, false, 1);
  linear_backward_weight({dy.data(), kOut}, {x.data(), kIn}, kRows, weight.type, p.dw.data(), true, kOut, kIn, nullptr,
                         1);
  return p;
}

TEST(LinearSignals, ProductsAreNotDisturbed) {
  const std::vector<float> wide = numbers(kOut * kIn), x = numbers(kRows * kIn), dy = numbers(kRows * kOut);
  std::vector<uint16_t> narrow(wide.size());
  to_bfloat16(wide.data(), kOut, kIn, narrow.data(), 1);
  for (const Weight& weight : {Weight{WeightType::kFloat32, wide.data(), nullptr, kOut, kIn},
                               Weight{WeightType::kBfloat16, narrow.data(), nullptr, kOut, kIn}}) {
    const Products expected = products(weight, x, dy);
    received = 0;
    const Interruptions signals;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (std::chrono::steady_clock::now() < end) ASSERT_TRUE(products(weight, x, dy) == expected);
    EXPECT_GT(received, 1000);
  }
}

}  // namespace
}  // namespace deltanet::nn
