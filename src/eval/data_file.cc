#include "eval/data_file.h"

#include "deltanet/error.h"

namespace deltanet::eval {

std::filesystem::path find_data_file(const Task& task, const std::string& folder,
                                     const std::vector<std::string_view>& endings) {
  std::string expected;
  for (const std::string_view stem : task.files) {
    for (const std::string_view ending : endings) {
      const std::string name = std::string(stem) + std::string(ending);
      const std::filesystem::path path = std::filesystem::path(folder) / name;
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
  return {{"file", file.filename().string()}, {"bytes", std::filesystem::file_size(file)}};
}

}  // namespace deltanet::eval
