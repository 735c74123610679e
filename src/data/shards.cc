#include "data/shards.h"

#include <algorithm>
#include <bit>

#include "deltanet/error.h"

namespace deltanet::data {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "shards are little-endian and used as they are");

constexpr int64_t kLongestMeta = int64_t{16} << 20;

void check_size(const MappedFile& file, int64_t count, std::size_t width, const char* what) {
  const uint64_t expected = static_cast<uint64_t>(count) * width;
  if (file.bytes().size() == expected) return;
  throw Error("[open_shards] " + file.path().string() + ": given " + std::to_string(file.bytes().size()) +
              " bytes; expected " + std::to_string(expected) + " for " + std::to_string(count) + " " + what);
}

// Copies ids and returns the largest of them as a number without sign.
template <class T>
uint32_t copy_ids(const T* source, int64_t count, int32_t* ids) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max<uint32_t>(largest, source[i]);
    ids[i] = static_cast<int32_t>(source[i]);
  }
  return largest;
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
    shards_.push_back({MappedFile(shard_path(directory_, s, ".bin"), MappedFile::Access::kRandom),
                       MappedFile(shard_path(directory_, s, ".idx"), MappedFile::Access::kRandom)});
    check_shard(shards_.back(), meta_.shards[s], s == 0);
    begins_.push_back(begins_.back() + meta_.shards[s].tokens);
  }
}

void ShardStore::check_shard(const Shard& shard, const ShardInfo& info, bool first) const {
  check_size(shard.tokens, info.tokens, token_bytes(meta_.vocab_size), "tokens");
  check_size(shard.starts, info.documents, sizeof(uint64_t), "documents");
  const std::span<const uint64_t> starts = shard.document_starts();
  const auto refuse = [&](std::size_t i, const std::string& given, const std::string& expected) {
    throw Error("[open_shards] " + shard.starts.path().string() + ": document " + std::to_string(i) + ": given " +
                given + "; expected " + expected);
  };
  if (first && (starts.empty() || starts[0] != 0)) refuse(0, "another start", "the first token");
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const uint64_t lowest = i == 0 ? 0 : starts[i - 1] + 1, end = static_cast<uint64_t>(info.tokens);
    if (starts[i] < lowest || starts[i] >= end) {
      refuse(i, "the start " + std::to_string(starts[i]),
             "one from " + std::to_string(lowest) + " to " + std::to_string(end - 1));
    }
  }
}

std::size_t ShardStore::shard_of(int64_t token) const {
  return static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), token) - begins_.begin()) - 1;
}

std::span<const uint64_t> ShardStore::Shard::document_starts() const {
  return {reinterpret_cast<const uint64_t*>(starts.bytes().data()), starts.bytes().size() / sizeof(uint64_t)};
}

std::string ShardStore::place(int64_t token) const {
  const std::size_t s = shard_of(token);
  return shards_[s].tokens.path().string() + ": token " + std::to_string(token - begins_[s]);
}

void ShardStore::read(int64_t begin, int64_t end, int32_t* ids) const {
  check_range(begin, end);
  for (std::size_t s = begin < end ? shard_of(begin) : 0; begin < end; ++s) {
    const int64_t count = std::min(end, begins_[s + 1]) - begin, from = begin - begins_[s];
    const std::byte* data = shards_[s].tokens.bytes().data();
    const uint32_t largest = token_bytes(meta_.vocab_size) == 2
                                 ? copy_ids(reinterpret_cast<const uint16_t*>(data) + from, count, ids)
                                 : copy_ids(reinterpret_cast<const uint32_t*>(data) + from, count, ids);
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
    const int64_t part_end = std::min(end, begins_[s + 1]);
    const std::span<const uint64_t> starts = shards_[s].document_starts();
    auto start = std::lower_bound(starts.begin(), starts.end(), static_cast<uint64_t>(begin - begins_[s]));
    for (; start != starts.end() && begins_[s] + static_cast<int64_t>(*start) < part_end; ++start) {
      found.push_back(begins_[s] + static_cast<int64_t>(*start));
    }
    begin = part_end;
  }
  return found;
}

}  // namespace deltanet::data
