#include "base/interrupt.h"

#include <ctime>
#include <utility>

namespace deltanet {
namespace {

// A clock that costs a few nanoseconds to read, as it is asked in every item of a loop.
int64_t milliseconds() {
#ifdef CLOCK_MONOTONIC_COARSE
  constexpr clockid_t kClock = CLOCK_MONOTONIC_COARSE;
#else
  constexpr clockid_t kClock = CLOCK_MONOTONIC;
#endif
  timespec now{};
  clock_gettime(kClock, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

}  // namespace

constinit thread_local Interrupt* current_interrupt = nullptr;

Interrupt::Interrupt(std::function<bool()> ended)
    : ended_(std::move(ended)),
      before_(current_interrupt),
      owner_(std::this_thread::get_id()),
      next_(milliseconds() + kMilliseconds) {
  current_interrupt = this;
}

Interrupt::~Interrupt() { current_interrupt = before_; }

void Interrupt::check() {
  if (is_ended_.load(std::memory_order_relaxed)) throw Interrupted();
  if (std::this_thread::get_id() != owner_) return;
  const int64_t now = milliseconds();
  if (now < next_) return;
  next_ = now + kMilliseconds;
  if (!ended_()) return;
  is_ended_.store(true, std::memory_order_relaxed);
  throw Interrupted();
}

}  // namespace deltanet
