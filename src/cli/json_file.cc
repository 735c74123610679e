#include "cli/json_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "deltanet/error.h"

namespace deltanet::cli {

void check_writable(const std::string& path) {
  std::error_code none;
  const auto status = std::filesystem::status(path, none);
  if (path.empty() || path == "-" || std::filesystem::is_fifo(status)) return;  // its reader would take it for the end
  if (!std::ofstream(path, std::ios::app)) {
    throw Error(fmt::format("--json: cannot write to '{}'; expected a file that can be created", path));
  }
}

void write_json(const std::string& path, const nlohmann::json& json) {
  if (path.empty()) return;
  const std::string text = json.dump(2) + "\n";
  if (path == "-") {
    fmt::print("{}", text);
    return;
  }
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace deltanet::cli
