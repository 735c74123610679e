#pragma once

#include <stdexcept>
#include <string>

namespace deltanet {

// Thrown at every boundary of the library for wrong input. The text names the operation and the argument, what was
// given and what was expected: "[forward] k: has K = 60, but q has K = 64".
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace deltanet
