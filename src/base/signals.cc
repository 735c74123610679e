#include "base/signals.h"

#include <initializer_list>

#ifdef DELTANET_OPENMP
#include <omp.h>
#endif

namespace deltanet {
namespace {

sigset_t from_outside() {
  sigset_t set;
  sigfillset(&set);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&set, fault);
  return set;
}

// The other threads of a team need no signals at all: there is always the one that started it.
void keep_from_workers([[maybe_unused]] int threads) {
#ifdef DELTANET_OPENMP
  if (threads <= 1) return;
#pragma omp parallel num_threads(threads)
  {
    thread_local bool kept = false;
    if (!kept && omp_get_thread_num() > 0) {
      const sigset_t set = from_outside();
      pthread_sigmask(SIG_BLOCK, &set, nullptr);
      kept = true;
    }
  }
#endif
}

}  // namespace

SignalsWait::SignalsWait(int threads) {
  const sigset_t set = from_outside();
  pthread_sigmask(SIG_BLOCK, &set, &before_);
  keep_from_workers(threads);
}

SignalsWait::~SignalsWait() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

}  // namespace deltanet
