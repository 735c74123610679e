// How a checkpoint is replaced so that no mixture of two can ever be read.
//
// A directory is read through its entry: model.safetensors if it is there, else the index. Everything new is first
// written and synced under temporary names, which takes long and may fail, but changes nothing. Then, each step on disk
// before the next:
//   1. If new files take over names that belong to the old checkpoint (shards of the same number, a changed
//      config.json), both old entries are removed: from here on the directory cannot be read. Otherwise the old
//      checkpoint stays whole and step 3 switches from the old to the new at once.
//   2. The new shards and other files are renamed to their names.
//   3. The new entry is renamed to its name, and an old entry of the other kind is removed. With the index as the new
//      entry, that removal is the switch, because model.safetensors is read first.
//   4. Shards of the old checkpoint that the new one does not have are removed.
// Between 1 and 3 lie only renamings, which need no space.

#include <algorithm>
#include <cstdio>
#include <set>
#include <system_error>

#include "base/file.h"
#include "base/json.h"
#include "deltanet/error.h"
#include "model/checkpoint/checkpoint.h"

namespace deltanet {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const SafetensorsFile::Metadata kMetadata = {{"format", "pt"}};  // transformers refuses files without it

[[noreturn]] void fail(const fs::path& path, const std::string& what) {
  throw Error("[write_checkpoint] " + path.string() + ": " + what);
}

using Shard = std::vector<StoredTensor>;

int64_t bytes_in_file(const StoredTensor& tensor, DType dtype) {
  return tensor.dtype == DType::kF32 ? tensor.count() * dtype_bytes(dtype) : tensor.bytes;
}

// As transformers splits: in the given order, a shard ends before the tensor that would make it too large; a tensor
// that is too large by itself is a shard of its own, and the shard before it goes on behind it.
std::vector<Shard> split(std::span<const StoredTensor> tensors, const CheckpointOptions& options) {
  std::vector<Shard> shards;
  Shard current;
  int64_t filled = 0;
  for (const StoredTensor& tensor : tensors) {
    const int64_t bytes = bytes_in_file(tensor, options.dtype);
    if (bytes > options.max_shard_bytes) {
      shards.push_back({tensor});
      continue;
    }
    if (filled + bytes > options.max_shard_bytes) {
      shards.push_back(std::move(current));
      current.clear();
      filled = 0;
    }
    current.push_back(tensor);
    filled += bytes;
  }
  if (!current.empty() || shards.empty()) shards.push_back(std::move(current));
  return shards;
}

std::string shard_name(size_t number, size_t count) {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", number, count);
  return name;
}

// Is it a name as shard_name() makes them?
bool is_shard_name(std::string_view name) {
  constexpr std::string_view kBegin = "model-", kMiddle = "-of-", kEnd = ".safetensors";
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return false;
  const std::string_view numbers = name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size());
  const auto is_number = [](std::string_view text) {
    return text.size() >= 5 && text.find_first_not_of("0123456789") == text.npos;
  };
  const size_t middle = numbers.find(kMiddle);
  return middle != numbers.npos && is_number(numbers.substr(0, middle)) &&
         is_number(numbers.substr(middle + kMiddle.size()));
}

std::string index_text(const std::vector<Shard>& shards, DType dtype) {
  int64_t total_size = 0, total_parameters = 0;
  json weight_map = json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const StoredTensor& tensor : shards[i]) {
      total_size += bytes_in_file(tensor, dtype);
      total_parameters += tensor.count();
      weight_map[tensor.name] = shard_name(i + 1, shards.size());
    }
  }
  const json index = {{"metadata", {{"total_parameters", total_parameters}, {"total_size", total_size}}},
                      {"weight_map", std::move(weight_map)}};
  return index.dump(2, ' ', true) + "\n";  // Python's json.dumps escapes what is not ASCII
}

bool holds(const fs::path& path, const std::string& text) {
  std::error_code missing;
  return fs::file_size(path, missing) == text.size() && !missing &&
         read_file(path, static_cast<int64_t>(text.size())) == text;
}

void remove_file(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) fail(path, error.message());
}

// A checkpoint is replaced as a whole, which a device or a pipe cannot be.
void check_place(const fs::path& path) {
  std::error_code none;
  const fs::file_status status = fs::status(path, none);
  if (fs::exists(status) && !fs::is_regular_file(status)) fail(path, "is no file; expected one, or nothing");
}

void check_arguments(const fs::path& directory, std::span<const StoredTensor> tensors,
                     const CheckpointOptions& options) {
  if (options.max_shard_bytes <= 0) {
    fail(directory, "max_shard_bytes: given " + std::to_string(options.max_shard_bytes) + "; expected 1 or more");
  }
  std::set<std::string_view> names;
  for (const StoredTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) fail(directory, "tensor " + in_quotes(tensor.name) + ": given twice");
  }
  for (const auto& [name, text] : options.others) {
    const bool plain = !name.empty() && name.front() != '.' && name.find('/') == name.npos;
    if (!plain || name == kSingleFile || name == kIndexFile || is_shard_name(name)) {
      fail(directory, "others: given " + in_quotes(name) + "; expected a file name that weights do not use");
    }
  }
}

// The new files, complete and synced under temporary names.
struct Staged {
  std::vector<AtomicFile> entry;  // one: model.safetensors or the index
  std::vector<AtomicFile> rest;
  bool takes_over_names = false;  // of the checkpoint that is in the directory
};

Staged stage(const fs::path& directory, const std::vector<Shard>& shards, const CheckpointOptions& options) {
  Staged staged;
  const auto add_weights = [&](std::vector<AtomicFile>& files, const fs::path& path, const Shard& shard) {
    check_place(path);
    write_safetensors(files.emplace_back(path), shard, kMetadata, options.dtype, {}, options.checksums);
    files.back().prepare();
  };
  const auto add_text = [&](std::vector<AtomicFile>& files, const fs::path& path, const std::string& text) {
    check_place(path);
    files.emplace_back(path).write(text);
    files.back().prepare();
  };
  for (const auto& [name, text] : options.others) {
    if (holds(directory / name, text)) continue;  // part of both checkpoints
    add_text(staged.rest, directory / name, text);
    staged.takes_over_names = true;  // also if it is new: the old checkpoint must not be read along with it
  }
  if (shards.size() == 1) {
    add_weights(staged.entry, directory / kSingleFile, shards.front());
    return staged;
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    const fs::path path = directory / shard_name(i + 1, shards.size());
    staged.takes_over_names |= fs::exists(path);
    add_weights(staged.rest, path, shards[i]);
  }
  add_text(staged.entry, directory / kIndexFile, index_text(shards, options.dtype));
  return staged;
}

}  // namespace

void write_checkpoint(const fs::path& directory, std::span<const StoredTensor> tensors,
                      const CheckpointOptions& options) {
  check_arguments(directory, tensors, options);
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) fail(directory, error.message());
  remove_abandoned(directory);

  const std::vector<Shard> shards = split(tensors, options);
  Staged staged = stage(directory, shards, options);
  if (staged.takes_over_names) {
    // In this order: where an interrupted save left both, the index is the one that is not read.
    const AtomicFile& entry = staged.entry.front();
    for (const std::string_view name : {kIndexFile, kSingleFile}) {
      // A link to what is replaced stays: without its file it is no entry.
      const fs::path path = directory / name == entry.target() ? entry.replaced() : directory / name;
      remove_file(path);
      sync_directory(path.parent_path());
    }
  }
  std::set<std::string> current;
  for (AtomicFile& file : staged.rest) {
    current.insert(file.target().filename().string());
    file.commit();
  }
  staged.entry.front().commit();
  remove_file(directory / (shards.size() == 1 ? kIndexFile : kSingleFile));
  sync_directory(directory);

  std::vector<fs::path> stale;
  for (const auto& file : fs::directory_iterator(directory)) {
    const std::string name = file.path().filename().string();
    if (is_shard_name(name) && !current.contains(name)) stale.push_back(file.path());
  }
  for (const fs::path& path : stale) remove_file(path);
}

}  // namespace deltanet
