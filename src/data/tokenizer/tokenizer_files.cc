#include "data/tokenizer/tokenizer_files.h"

#include "base/file.h"

namespace deltanet::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLargest = int64_t{256} << 20;  // bytes
constexpr const char *kJson = "tokenizer.json", *kModel = "tokenizer.model";
constexpr const char* kCompanions[] = {
    kJson, kModel, "tokenizer_config.json", "special_tokens_map.json", "generation_config.json", "added_tokens.json"};

}  // namespace

NamedFiles read_companions(const fs::path& directory) {
  NamedFiles files;
  for (const char* name : kCompanions) {
    if (fs::exists(directory / name)) files[name] = read_file(directory / name, kLargest);
  }
  return files;
}

NamedFiles read_tokenizer_files(const std::string& tokenizer) {
  if (tokenizer == "bytes") return {};
  const fs::path path(tokenizer);
  if (fs::is_directory(path)) return read_companions(path);
  // The file itself, whatever its name; another tokenizer beside it is not meant, but its settings are.
  NamedFiles files = read_companions(path.has_parent_path() ? path.parent_path() : fs::path("."));
  files.erase(kJson);
  files.erase(kModel);
  files[path.extension() == ".json" ? kJson : kModel] = read_file(path, kLargest);
  return files;
}

bool has_tokenizer(const fs::path& directory) {
  return fs::exists(directory / kJson) || fs::exists(directory / kModel);
}

}  // namespace deltanet::data
