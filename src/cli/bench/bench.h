#pragma once

#include <functional>

#include "cli/command.h"

// `deltanet bench`: its subcommands, one file each. What measures is in src/bench;
// bench/README.md says what is counted and how.

namespace deltanet::cli {

std::function<int()> setup_bench_kernels(const Arguments& args);
std::function<int()> setup_bench_floors(const Arguments& args);
std::function<int()> setup_bench_step(const Arguments& args);
std::function<int()> setup_bench_memory(const Arguments& args);
std::function<int()> setup_bench_model(const Arguments& args);
std::function<int()> setup_bench_train(const Arguments& args);

}  // namespace deltanet::cli
