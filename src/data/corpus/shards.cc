#include "data/corpus/shards.h"

#include <algorithm>
#include <bit>

#include "deltanet/error.h"

namespace deltanet::data {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "shards are little-endian and used as they are");

constexpr int64_t kLongestMeta = int64_t{16} << 20;

constexpr int64_t kBlock = 512;  // places of documents that are read at once

void check_size(const FileReader& file, int64_t count, std::size_t width, const char* what) {
  const int64_t expected = count * static_cast<int64_t>(width);
  if (file.size() == expected) return;
  throw Error("[open_shards] " + file.path().string() + ": given " + std::to_string(file.size()) + " bytes; expected " +
              std::to_string(expected) + " for " + std::to_string(count) + " " + what);
}

// Reads ids and returns the largest of them as a number without sign.
template <class T>
uint32_t read_ids(const FileReader& file, int64_t begin, int64_t count, int32_t* ids) {
  constexpr int64_t kPiece = 8192, kWidth = sizeof(T);
  T piece[kPiece];
  uint32_t largest = 0;
  for (int64_t done = 0; done < count; done += kPiece) {
    const int64_t n = std::min(kPiece, count - done);
    file.read((begin + done) * kWidth, n * kWidth, piece);
    for (int64_t i = 0; i < n; ++i) {
      largest = std::max<uint32_t>(largest, piece[i]);
      ids[done + i] = static_cast<int32_t>(piece[i]);
    }
  }
  return largest;
}

// A block of the places where documents start, of which the file has `count`.
std::vector<uint64_t> read_starts(const FileReader& file, int64_t block, int64_t count) {
  constexpr int64_t kWidth = sizeof(uint64_t);
  const int64_t begin = block * kBlock;
  std::vector<uint64_t> starts(static_cast<std::size_t>(std::min(kBlock, count - begin)));
  file.read(begin * kWidth, static_cast<int64_t>(starts.size()) * kWidth, starts.data());
  return starts;
}

}  // namespace

bool is_token_directory(const fs::path& directory) { return fs::exists(directory / "meta.json"); }

ShardMeta read_meta(const fs::path& directory) {
  const fs::path meta = directory / "meta.json";
  return meta_from_json(read_file(meta, kLongestMeta), meta.string());
}

ShardStore::ShardStore(const fs::path& directory) : directory_(directory), begins_{0} {
  if (!is_token_directory(directory_)) {
    throw Error("[open_shards] " + directory_.string() +
                ": given no meta.json in it; expected a directory that `deltanet tokenize` finished");
  }
  meta_ = read_meta(directory_);
  for (std::size_t s = 0; s < meta_.shards.size(); ++s) {
    const auto open = [&](const char* extension) {
      return FileReader(shard_path(directory_, s, extension, meta_.generation), FileReader::Access::kRandom);
    };
    shards_.push_back({open(".bin"), open(".idx")});
    check_shard(shards_.back(), meta_.shards[s], s == 0);
    begins_.push_back(begins_.back() + meta_.shards[s].tokens);
  }
}

void ShardStore::check_shard(Shard& shard, const ShardInfo& info, bool first) const {
  check_size(shard.tokens, info.tokens, token_bytes(meta_.vocab_size), "tokens");
  check_size(shard.starts, info.documents, sizeof(uint64_t), "documents");
  const auto refuse = [&](int64_t i, const std::string& given, const std::string& expected) {
    throw Error("[open_shards] " + shard.starts.path().string() + ": document " + std::to_string(i) + ": given " +
                given + "; expected " + expected);
  };
  if (first && info.documents == 0) refuse(0, "no start", "the first token");
  uint64_t lowest = 0;
  const auto end = static_cast<uint64_t>(info.tokens);
  std::vector<uint64_t> starts;
  for (int64_t i = 0; i < info.documents; ++i) {
    if (i % kBlock == 0) {
      starts = read_starts(shard.starts, i / kBlock, info.documents);
      shard.firsts.push_back(starts.front());
    }
    const uint64_t start = starts[static_cast<std::size_t>(i % kBlock)];
    if (first && i == 0 && start != 0) refuse(0, "another start", "the first token");
    if (start < lowest || start >= end) {
      refuse(i, "the start " + std::to_string(start),
             "one from " + std::to_string(lowest) + " to " + std::to_string(end - 1));
    }
    lowest = start + 1;
  }
}

std::size_t ShardStore::shard_of(int64_t token) const {
  return static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), token) - begins_.begin()) - 1;
}

std::string ShardStore::place(int64_t token) const {
  const std::size_t s = shard_of(token);
  return shards_[s].tokens.path().string() + ": token " + std::to_string(token - begins_[s]);
}

void ShardStore::read(int64_t begin, int64_t end, int32_t* ids) const {
  check_range(begin, end);
  for (std::size_t s = begin < end ? shard_of(begin) : 0; begin < end; ++s) {
    const int64_t count = std::min(end, begins_[s + 1]) - begin, from = begin - begins_[s];
    const FileReader& file = shards_[s].tokens;
    const uint32_t largest = token_bytes(meta_.vocab_size) == 2 ? read_ids<uint16_t>(file, from, count, ids)
                                                                : read_ids<uint32_t>(file, from, count, ids);
    if (largest > static_cast<uint32_t>(meta_.largest_id)) {
      const auto found = std::find_if(ids, ids + count, [&](int32_t id) {
        return static_cast<uint32_t>(id) > static_cast<uint32_t>(meta_.largest_id);
      });
      throw Error("[read_tokens] " + place(begin + (found - ids)) + ": given the id " +
                  std::to_string(static_cast<uint32_t>(*found)) + "; expected at most " +
                  std::to_string(meta_.largest_id) + ", the largest_id of meta.json: the file is damaged");
    }
    ids += count;
    begin += count;
  }
}

std::vector<int64_t> ShardStore::document_starts(int64_t begin, int64_t end) const {
  check_range(begin, end);
  std::vector<int64_t> found;
  for (std::size_t s = begin < end ? shard_of(begin) : 0; begin < end; ++s) {
    const Shard& shard = shards_[s];
    const auto lowest = static_cast<uint64_t>(begin - begins_[s]);
    const auto part_end = static_cast<uint64_t>(std::min(end, begins_[s + 1]) - begins_[s]);
    const auto after = std::upper_bound(shard.firsts.begin(), shard.firsts.end(), lowest);
    // The block before may still have starts that are not below.
    for (auto first = after - (after == shard.firsts.begin() ? 0 : 1); first != shard.firsts.end(); ++first) {
      if (*first >= part_end) break;
      for (const uint64_t start : read_starts(shard.starts, first - shard.firsts.begin(), meta_.shards[s].documents)) {
        if (start >= lowest && start < part_end) found.push_back(begins_[s] + static_cast<int64_t>(start));
      }
    }
    begin = begins_[s] + static_cast<int64_t>(part_end);
  }
  return found;
}

}  // namespace deltanet::data
