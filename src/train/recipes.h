#pragma once

#include <span>
#include <string_view>

namespace deltanet {

struct Recipe {
  std::string_view name, toml;
};

// The files of configs/; the build writes them into the program (CMakeLists.txt).
std::span<const Recipe> recipes();

}  // namespace deltanet
