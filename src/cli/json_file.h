#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

// Results for programs: what `--json FILE` asks for.

namespace deltanet::cli {

// Throws Error if the file cannot be written, before anything is measured.
void check_writable(const std::string& path);
// Writes to the file, or to standard output for "-"; nothing for "".
void write_json(const std::string& path, const nlohmann::json& json);

}  // namespace deltanet::cli
