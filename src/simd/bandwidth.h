#pragma once

namespace deltanet::simd {

// Measured GB/s of `threads` threads (0: default_threads()) that read an array much larger than the caches.
double read_bandwidth(int threads, double seconds);

}  // namespace deltanet::simd
