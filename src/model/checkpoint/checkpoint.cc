#include "model/checkpoint/checkpoint.h"

#include <algorithm>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/parallel.h"
#include "deltanet/error.h"

namespace deltanet {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kLongestIndex = 100'000'000;  // bytes

// Shards lie beside their index: a path would let a downloaded index reach other files.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
}

// Tensor name -> file name.
std::map<std::string, std::string> weight_map(const fs::path& index) {
  const json document = parse_json(read_file(index, kLongestIndex), index.string());
  const auto fail = [&](const std::string& text) { throw Error("[checkpoint] " + index.string() + ": " + text); };
  if (!document.is_object() || !document.contains("weight_map") || !document["weight_map"].is_object()) {
    fail("weight_map: expected an object");
  }
  std::map<std::string, std::string> places;
  for (const auto& [tensor, file] : document["weight_map"].items()) {
    if (!file.is_string() || !is_plain_name(file.get_ref<const std::string&>())) {
      fail("weight_map, tensor " + in_quotes(tensor) + ": given " + in_quotes(file.dump()) +
           "; expected the name of a file in the same directory");
    }
    places.emplace(tensor, file.get<std::string>());
  }
  return places;
}

}  // namespace

std::string shape_text(std::span<const int64_t> shape) {
  std::string text;
  for (const int64_t extent : shape) text += (text.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + text + "]";
}

CheckpointReader::CheckpointReader(fs::path directory) : directory_(std::move(directory)) {
  const fs::path single = directory_ / kSingleFile;
  const fs::path index = directory_ / kIndexFile;
  if (!fs::is_directory(directory_)) {
    throw Error("[checkpoint] " + directory_.string() + ": expected a directory with model.safetensors");
  }
  if (fs::exists(single)) {  // it comes first for transformers too
    files_.push_back(std::make_unique<SafetensorsFile>(single));
    add_all(*files_.back());
  } else if (fs::exists(index)) {
    read_shards(index);
  } else {
    throw Error("[checkpoint] " + directory_.string() +
                ": given neither model.safetensors nor model.safetensors.index.json; expected one of them");
  }
}

void CheckpointReader::read_shards(const fs::path& index) {
  const std::map<std::string, std::string> places = weight_map(index);
  std::map<std::string, std::vector<std::string>> shards;
  for (const auto& [tensor, file] : places) shards[file].push_back(tensor);

  for (const auto& [file, tensors] : shards) {
    const auto fail = [&, name = file](const std::string& text) {
      throw Error("[checkpoint] " + (directory_ / name).string() + ": " + text);
    };
    if (!fs::exists(directory_ / file)) {
      fail("missing; " + index.string() + " lists it for tensor " + in_quotes(tensors.front()));
    }
    files_.push_back(std::make_unique<SafetensorsFile>(directory_ / file));
    const SafetensorsFile& shard = *files_.back();
    for (const std::string& tensor : tensors) {
      if (!shard.find(tensor)) fail("tensor " + in_quotes(tensor) + ": missing; " + index.string() + " lists it here");
    }
    for (const StoredTensor& tensor : shard.tensors()) {
      const auto place = places.find(tensor.name);
      if (place != places.end() && place->second == file) continue;
      fail("tensor " + in_quotes(tensor.name) + ": given here; " + index.string() +
           (place == places.end() ? " does not list it" : " lists it in " + place->second));
    }
    add_all(shard);
  }
}

void CheckpointReader::add_all(const SafetensorsFile& file) {
  for (const StoredTensor& tensor : file.tensors()) tensors_.emplace(tensor.name, &tensor);
}

std::vector<std::string> CheckpointReader::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) names.emplace_back(name);
  return names;
}

const StoredTensor* CheckpointReader::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second;
}

CheckpointReader::Check CheckpointReader::check_values(int threads) const {
  struct Compared {
    const SafetensorsFile* file;
    const StoredTensor* tensor;
    bool differs = false;
  };
  Check check;
  std::vector<Compared> compared;
  for (const auto& file : files_) {
    for (const StoredTensor& tensor : file->tensors()) {
      ++check.tensors;
      if (file->metadata().contains(checksum_key(tensor.name))) {
        compared.push_back({file.get(), &tensor});
      } else {
        ++check.without;
      }
    }
  }
  parallel_for(threads, static_cast<int64_t>(compared.size()), [&](int64_t i) {
    Compared& one = compared[static_cast<size_t>(i)];
    constexpr int64_t kPiece = int64_t{1} << 20;
    std::vector<std::byte> piece(static_cast<size_t>(std::min(kPiece, one.tensor->bytes)));
    ContentHash hash;
    for (int64_t begin = 0; begin < one.tensor->bytes; begin += kPiece) {
      const int64_t bytes = std::min(kPiece, one.tensor->bytes - begin);
      one.tensor->read(begin, bytes, piece.data());
      hash.add(piece.data(), static_cast<size_t>(bytes));
    }
    one.differs = hex_text(hash.value()) != one.file->metadata().at(checksum_key(one.tensor->name));
  });
  for (const Compared& one : compared) {
    if (one.differs) check.damaged.push_back(one.file->name() + ": tensor " + in_quotes(one.tensor->name));
  }
  return check;
}

void CheckpointReader::copy_floats(std::string_view name, std::span<const int64_t> shape, float* out,
                                   int threads) const {
  const auto fail = [&](const std::string& text) {
    throw Error("[checkpoint] " + directory_.string() + ": tensor " + in_quotes(name) + text);
  };
  const StoredTensor* tensor = find(name);
  if (!tensor) fail(": missing");
  if (!std::equal(shape.begin(), shape.end(), tensor->shape.begin(), tensor->shape.end())) {
    fail(", shape: given " + shape_text(tensor->shape) + "; expected " + shape_text(shape));
  }
  deltanet::copy_floats(*tensor, out, threads);
}

}  // namespace deltanet
