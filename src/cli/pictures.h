#pragma once

#include <filesystem>
#include <string>

namespace deltanet::cli {

// Draws a file with `python -m deltanet.plots KIND` of the project's .venv where that is there; otherwise says how.
void draw(const std::string& kind, const std::filesystem::path& path);

}  // namespace deltanet::cli
