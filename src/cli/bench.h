#pragma once

#include <functional>

#include "cli/command.h"

// `deltanet bench`: its subcommands, one file each. What they share is in bench_rows.h, bench_work.h and
// bench_measure.h. bench/README.md says what is counted and how.

namespace deltanet::cli {

std::function<int()> setup_bench_kernels(CLI::App& app);
std::function<int()> setup_bench_floors(CLI::App& app);
std::function<int()> setup_bench_step(CLI::App& app);
std::function<int()> setup_bench_memory(CLI::App& app);
std::function<int()> setup_bench_model(CLI::App& app);
std::function<int()> setup_bench_train(CLI::App& app);

}  // namespace deltanet::cli
