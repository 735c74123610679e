#pragma once

#include "deltanet/interrupt.h"

// How the work below a call finds out that it is to end (deltanet/interrupt.h).

namespace deltanet {

// Of the calling thread: null where its call cannot be ended. parallel_for hands it on to the threads of its team.
extern constinit thread_local Interrupt* current_interrupt;

// Throws Interrupted where the call is to end. A few instructions where it cannot be ended.
inline void check_interrupt() {
  if (current_interrupt != nullptr) current_interrupt->check();
}

// Another Interrupt, or none, for what this thread does while it lives. None: for work that must not stop half-way.
class InterruptScope {
 public:
  explicit InterruptScope(Interrupt* interrupt) : before_(current_interrupt) { current_interrupt = interrupt; }
  ~InterruptScope() { current_interrupt = before_; }
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  Interrupt* before_;
};

}  // namespace deltanet
