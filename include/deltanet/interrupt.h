#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>

// Long calls that can be ended from outside, by Ctrl-C for instance.

namespace deltanet {

// What leaves a call that was ended. Results are not to be used; a session is as it was before the call, or, if the
// call was saying something, behind the last token that it handed out. A model has not changed.
struct Interrupted : std::exception {
  const char* what() const noexcept override { return "[interrupt] the call was ended before it was done"; }
};

class Interrupt {
 public:
  // While it lives, calls of this thread can be ended: `ended` is asked on this thread, every kMilliseconds at most,
  // and once it has said true no more.
  explicit Interrupt(std::function<bool()> ended);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  static constexpr int64_t kMilliseconds = 50;

  void check();  // throws Interrupted

 private:
  std::function<bool()> ended_;
  Interrupt* before_;
  std::thread::id owner_;
  int64_t next_;  // milliseconds on the clock
  std::atomic<bool> is_ended_{false};
};

}  // namespace deltanet
