#pragma once

#include <cstdint>
#include <functional>

#include "deltanet/runtime.h"

namespace deltanet {

// Calls body(0) ... body(count-1), each once, on up to `threads` threads (0: default_threads()). Items are handed out
// one by one in order, so long ones should come first. The first exception is rethrown here after all threads have
// stopped.
void parallel_for(int threads, int64_t count, const std::function<void(int64_t)>& body);

}  // namespace deltanet
