#pragma once

#include <cstdint>
#include <filesystem>

namespace deltanet::cli {

// Trains a model and its preconditioned form on associative recall, `seeds` pairs of runs of so many steps, and shows
// their curves while they grow. The runs go to `path`, which is written anew.
void show_recall(int64_t seeds, int64_t steps, const std::filesystem::path& path);

}  // namespace deltanet::cli
