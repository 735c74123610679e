#include "golden_file.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "deltanet/error.h"

#ifndef DELTANET_SOURCE_DIR
#define DELTANET_SOURCE_DIR "."
#endif

namespace deltanet::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

template <class Stored>
std::vector<double> widen(const char* bytes, std::size_t size) {
  std::vector<Stored> stored(size / sizeof(Stored));
  std::memcpy(stored.data(), bytes, stored.size() * sizeof(Stored));
  return {stored.begin(), stored.end()};
}

std::vector<double> decode(const std::string& type, const char* bytes, std::size_t size) {
  if (type == "F32") return widen<float>(bytes, size);
  if (type == "F64") return widen<double>(bytes, size);
  if (type == "I64") return widen<int64_t>(bytes, size);
  throw Error("[read_safetensors] dtype: given " + type + "; expected F32, F64 or I64");
}

// Spec values are JSON strings, numbers, booleans or null; the vocabulary of set_option is text.
std::string option_text(const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

fs::path full_set() {
  const char* folder = std::getenv("DELTANET_FIXTURES");
  return folder != nullptr ? fs::path(folder) : fs::path(DELTANET_SOURCE_DIR) / "../shared/fixtures/ops";
}

}  // namespace

Arrays read_safetensors(const fs::path& path, std::map<std::string, std::string>& metadata) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw Error("[read_safetensors] path: given " + path.string() + "; expected a readable file");
  const std::string bytes((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  const auto malformed = [&](const char* what) { return Error("[read_safetensors] " + path.string() + ": " + what); };

  uint64_t header_size = 0;
  if (bytes.size() < sizeof header_size) throw malformed("no header");
  std::memcpy(&header_size, bytes.data(), sizeof header_size);
  if (header_size > bytes.size() - sizeof header_size) throw malformed("the header is longer than the file");
  const json header = json::parse(bytes.substr(sizeof header_size, header_size));
  const std::size_t data_start = sizeof header_size + header_size;

  Arrays tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      metadata = entry.get<std::map<std::string, std::string>>();
      continue;
    }
    const auto [begin, end] = entry.at("data_offsets").get<std::pair<std::size_t, std::size_t>>();
    if (begin > end || end > bytes.size() - data_start) throw malformed("a tensor lies outside the file");
    tensors[name] = {entry.at("shape").get<std::vector<int64_t>>(),
                     decode(entry.at("dtype").get<std::string>(), bytes.data() + data_start + begin, end - begin)};
  }
  return tensors;
}

GoldenFile read_golden(const fs::path& path) {
  std::map<std::string, std::string> metadata;
  Arrays tensors = read_safetensors(path, metadata);
  GoldenFile golden;
  golden.row = metadata.at("row");
  golden.case_name = metadata.at("case");
  const json spec = json::parse(metadata.at("spec"));
  for (const auto& [key, value] : spec.items()) {
    set_option(golden.spec, key, option_text(value));
  }

  const std::string kGradient = "grad.";
  for (const std::string name : {"o", "S_final", "A_final", "P_final", "G_final"}) {
    if (auto node = tensors.extract(name)) golden.outputs.insert(std::move(node));
    if (auto node = tensors.extract("d" + name)) golden.upstream.insert(std::move(node));
  }
  for (auto& [name, array] : tensors) {
    if (name.starts_with(kGradient)) {
      golden.gradients[name.substr(kGradient.size())] = std::move(array);
    } else {
      golden.inputs[name] = std::move(array);
    }
  }
  return golden;
}

std::vector<fs::path> golden_paths() {
  std::map<std::string, fs::path> by_name;
  for (const fs::path& folder : {fs::path(DELTANET_SOURCE_DIR) / "tests/golden", full_set()}) {
    if (!fs::is_directory(folder)) continue;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".safetensors") by_name[entry.path().filename().string()] = entry.path();
    }
  }
  std::vector<fs::path> paths;
  for (const auto& [name, path] : by_name) paths.push_back(path);
  return paths;
}

std::string golden_name(const fs::path& path) {
  std::string name = path.stem().string();
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

}  // namespace deltanet::test
