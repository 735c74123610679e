#pragma once

#include <signal.h>

namespace deltanet {

// While it lives, signals that come from outside wait: their handlers do not run on the calling thread, nor on the
// threads of a team of `threads` that the caller then starts. For code of others that points the stack register away
// from the stack, where the frame of a handler would overwrite other memory. Signals of faults do not wait.
class SignalsWait {
 public:
  explicit SignalsWait(int threads);
  ~SignalsWait();
  SignalsWait(const SignalsWait&) = delete;
  SignalsWait& operator=(const SignalsWait&) = delete;

 private:
  sigset_t before_;
};

// Whether it reaches the threads of teams that exist already. Otherwise a team keeps the signals of the moment in which
// it was started, so that no call of such code may be without.
#ifdef DELTANET_OPENMP
inline constexpr bool kSignalsReachTeams = true;
#else
inline constexpr bool kSignalsReachTeams = false;
#endif

}  // namespace deltanet
