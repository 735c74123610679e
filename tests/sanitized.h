#pragma once

namespace deltanet::test {

// Whether this build watches memory or threads, which makes it many times slower. Tests that repeat the same code for
// the sake of exactness may then do less of it: exactness is asked of the other builds.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace deltanet::test
