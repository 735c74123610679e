#include "eval/data_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "base/hash.h"
#include "deltanet/error.h"

namespace deltanet::eval {

std::filesystem::path find_data_file(const Task& task, const std::string& folder,
                                     const std::vector<std::string_view>& endings) {
  std::string expected;
  for (const std::string_view stem : task.files) {
    for (const std::string_view ending : endings) {
      const std::string name = std::string(stem) + std::string(ending);
      std::filesystem::path path = std::filesystem::path(folder) / name;
      if (!folder.empty() && std::filesystem::exists(path)) return path;
    }
    expected += (expected.empty() ? "" : " or ") + std::string(stem) + std::string(endings.front());
  }
  throw Error("[eval] " + std::string(task.name) + ": " +
              (folder.empty() ? "no folder of data is given (--data)" : folder + " does not hold its data") +
              "; expected " + expected + (endings.size() > 1 ? " (or with another ending, such as .gz or .zst)" : "") +
              " with " + std::string(task.fields) + ". People get it from " + std::string(task.source));
}

nlohmann::ordered_json about_file(const std::filesystem::path& file) {
  const FileReader input(file);
  std::vector<char> piece(std::size_t{1} << 20);
  uint64_t hash = kEmptyHash;
  for (int64_t begin = 0; begin < input.size(); begin += static_cast<int64_t>(piece.size())) {
    const int64_t bytes = std::min(static_cast<int64_t>(piece.size()), input.size() - begin);
    input.read(begin, bytes, piece.data());
    hash = hash_bytes(piece.data(), static_cast<std::size_t>(bytes), hash);
  }
  return {{"file", file.filename().string()}, {"bytes", input.size()}, {"checksum", fmt::format("{:016x}", hash)}};
}

}  // namespace deltanet::eval
