#pragma once

#include <filesystem>

namespace deltanet::cli {

// What preconditioning does, and when: a table for each kind of keys. The curves go to `path`.
void show_regression(const std::filesystem::path& path);

}  // namespace deltanet::cli
