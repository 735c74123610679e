#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace deltanet::cli {

// Trains a small PGDN on a text, writes it as a checkpoint, loads that and lets it write.
void show_text_model(const std::string& text, int64_t steps, const std::filesystem::path& checkpoint);

}  // namespace deltanet::cli
