#include "model_fixture.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "golden_file.h"

namespace deltanet::test {
namespace fs = std::filesystem;
namespace {

std::vector<std::vector<int32_t>> ids_of(const Array& array) {
  const auto length = array.shape[1];
  std::vector<std::vector<int32_t>> sequences;
  for (int64_t b = 0; b < array.shape[0]; ++b) {
    std::vector<int32_t> sequence;
    for (int64_t t = 0; t < length; ++t) sequence.push_back(static_cast<int32_t>(array.data[b * length + t]));
    sequences.push_back(sequence);
  }
  return sequences;
}

void add_directories(const fs::path& folder, std::map<std::string, fs::path>& found) {
  if (!fs::is_directory(folder)) return;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (fs::exists(entry.path() / "fixture.safetensors")) found[entry.path().filename().string()] = entry.path();
  }
}

}  // namespace

ModelFixture read_model_fixture(const fs::path& directory) {
  std::map<std::string, std::string> metadata;
  const Arrays arrays = read_safetensors(directory / "fixture.safetensors", metadata);
  ModelFixture fixture;
  fixture.directory = directory;
  fixture.input_ids = ids_of(arrays.at("input_ids"));
  fixture.logits = arrays.at("logits").data;
  fixture.loss = arrays.at("loss").data.front();
  if (arrays.contains("prompt")) {
    fixture.prompt = ids_of(arrays.at("prompt"));
    fixture.greedy = ids_of(arrays.at("greedy"));
  }
  for (const auto& [name, array] : arrays) {
    if (name.starts_with("grad.")) fixture.gradients[name.substr(5)] = array.data;
  }
  return fixture;
}

std::vector<fs::path> model_fixture_paths() {
  std::map<std::string, fs::path> found;
  add_directories(fs::path(DELTANET_SOURCE_DIR) / "tests/golden/models", found);
  const char* folder = std::getenv("DELTANET_MODEL_FIXTURES");
  add_directories(folder ? fs::path(folder) : fs::path(DELTANET_SOURCE_DIR) / "../shared/fixtures/models", found);
  std::vector<fs::path> paths;
  for (const auto& [name, path] : found) paths.push_back(path);
  return paths;
}

std::string model_fixture_name(const fs::path& directory) { return directory.filename().string(); }

Packed::Packed(const std::vector<std::vector<int32_t>>& sequences) {
  for (const auto& sequence : sequences) {
    ids.insert(ids.end(), sequence.begin(), sequence.end());
    offsets.push_back(static_cast<int64_t>(ids.size()));
  }
}

std::vector<int32_t> Packed::next() const {
  std::vector<int32_t> targets(ids.begin() + 1, ids.end());
  targets.push_back(-100);
  for (std::size_t n = 1; n < offsets.size(); ++n) targets[offsets[n] - 1] = -100;
  return targets;
}

double relative_error(const std::vector<float>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / std::max(norm, 1e-300));
}

}  // namespace deltanet::test
