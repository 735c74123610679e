#include <algorithm>
#include <bit>
#include <set>
#include <system_error>
#include <utility>

#include "data/corpus/shards.h"
#include "deltanet/error.h"

namespace deltanet::data {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "shards are little-endian and used as they are");

// Of this generation?
bool is_shard_name(const std::string& name, int generation) {
  constexpr std::string_view kPrefix = "shard-";
  if (!name.starts_with(kPrefix)) return false;
  const std::size_t end = name.find('.');
  if (end == name.npos) return false;
  const std::string_view number = std::string_view(name).substr(kPrefix.size(), end - kPrefix.size());
  const std::string_view rest = std::string_view(name).substr(end);
  const bool ours = generation == 0 ? rest == ".bin" || rest == ".idx" : rest == ".1.bin" || rest == ".1.idx";
  return ours && number.size() >= 5 && number.find_first_not_of("0123456789") == number.npos;
}

std::set<std::string> names_in(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.insert(entry.path().filename().string());
  return names;
}

}  // namespace

ShardWriter::ShardWriter(fs::path directory, const ShardOptions& options)
    : directory_(std::move(directory)), unfinished_(directory_ / ".unfinished"), options_(options) {
  if (options_.vocab_size < 1)
    refuse("vocab_size: given " + std::to_string(options_.vocab_size) + "; expected 1 or more");
  if (options_.shard_tokens < 1) {
    refuse("shard_tokens: given " + std::to_string(options_.shard_tokens) + "; expected 1 or more");
  }
  if (options_.eos && (*options_.eos < 0 || *options_.eos >= options_.vocab_size)) {
    refuse("eos: given the id " + std::to_string(*options_.eos) + "; expected one below " +
           std::to_string(options_.vocab_size));
  }
  replaces_ = is_token_directory(directory_);
  if (replaces_) check_old_corpus();
  try {
    fs::create_directories(directory_);
    lock_ = std::make_unique<DirectoryLock>(directory_);
    if (lock_->taken_by_another()) refuse("another process writes there; wait for it or choose another directory");
    if (replaces_) meta_.generation = 1 - read_meta(directory_).generation;
    // Only a finish() that was cut short, which leaves .unfinished, can have put a tokenizer there.
    const bool was_cut_short = fs::exists(unfinished_);
    const fs::path tokenizer = tokenizer_folder(directory_, meta_.generation);
    if (fs::exists(tokenizer) && !was_cut_short) {
      refuse("holds a folder " + tokenizer.filename().string() + " that is none of a corpus of tokens; choose " +
             "another directory or remove it");
    }
    for (const int generation : {0, 1}) {
      if (!replaces_ || generation == meta_.generation) remove_generation(generation, was_cut_short);
    }
    fs::remove_all(unfinished_);
    fs::create_directory(unfinished_);
  } catch (const fs::filesystem_error& error) {
    refuse(error.code().message());
  }
  remove_abandoned(directory_);
  meta_.vocab_size = options_.vocab_size;
  meta_.eos = options_.eos;
  meta_.tokenizer = options_.tokenizer;
}

ShardWriter::~ShardWriter() {
  if (moving_) return;
  std::error_code ignored;
  fs::remove_all(unfinished_, ignored);  // gives a full disk its space back
}

void ShardWriter::refuse(const std::string& what) const {
  throw Error("[write_shards] " + directory_.string() + ": " + what);
}

void ShardWriter::check_old_corpus() const {
  try {
    read_meta(directory_);
  } catch (const Error& error) {
    refuse(
        std::string("holds a meta.json that is none of a corpus of tokens; choose another directory or remove it (") +
        error.what() + ")");
  }
  if (!options_.replace) refuse("holds a corpus of tokens already; choose another directory, or replace it (--force)");
}

void ShardWriter::append(std::span<const int32_t> ids) {
  for (const int32_t id : ids) {
    if (id < 0 || id >= options_.vocab_size) {
      refuse("given the id " + std::to_string(id) + "; expected 0 to " + std::to_string(options_.vocab_size - 1));
    }
  }
  put(ids);
}

void ShardWriter::put(std::span<const int32_t> ids) {
  while (!ids.empty()) {
    if (!file_) start_shard();
    if (!inside_document_) {
      starts_.push_back(static_cast<uint64_t>(shard_tokens_));
      inside_document_ = true;
      ++documents_;
    }
    const auto count =
        std::min<std::size_t>(ids.size(), static_cast<std::size_t>(options_.shard_tokens - shard_tokens_));
    write_ids(ids.first(count));
    ids = ids.subspan(count);
    if (shard_tokens_ == options_.shard_tokens) end_shard();
  }
}

void ShardWriter::write_ids(std::span<const int32_t> ids) {
  for (const int32_t id : ids) meta_.largest_id = std::max(meta_.largest_id, id);
  if (token_bytes(options_.vocab_size) == 2) {
    const std::vector<uint16_t> narrow(ids.begin(), ids.end());
    file_->write(narrow.data(), narrow.size() * sizeof(uint16_t));
  } else {
    file_->write(ids.data(), ids.size() * sizeof(int32_t));  // never negative: the same bits as u32
  }
  shard_tokens_ += static_cast<int64_t>(ids.size());
  tokens_ += static_cast<int64_t>(ids.size());
}

void ShardWriter::end_document() {
  if (!inside_document_) return;
  if (options_.eos) put({&*options_.eos, 1});
  inside_document_ = false;
}

void ShardWriter::start_shard() {
  if (meta_.shards.size() == kMostShards) {
    refuse("shard_tokens: given " + std::to_string(options_.shard_tokens) + ", which makes more than " +
           std::to_string(kMostShards) + " shards; expected more tokens in each");
  }
  file_.emplace(shard_path(unfinished_, meta_.shards.size(), ".bin", meta_.generation));
}

void ShardWriter::end_shard() {
  AtomicFile index(shard_path(unfinished_, meta_.shards.size(), ".idx", meta_.generation));
  index.write(starts_.data(), starts_.size() * sizeof(uint64_t));
  file_->commit();
  index.commit();
  file_.reset();
  meta_.shards.push_back({shard_tokens_, static_cast<int64_t>(starts_.size())});
  starts_.clear();
  shard_tokens_ = 0;
}

const ShardMeta& ShardWriter::finish() {
  end_document();
  if (file_) end_shard();
  const fs::path tokenizer = tokenizer_folder(unfinished_, meta_.generation);
  if (!options_.tokenizer_files.empty()) fs::create_directory(tokenizer);
  for (const auto& [name, text] : options_.tokenizer_files) {
    AtomicFile file(tokenizer / name);
    file.write(text);
    file.commit();
  }
  AtomicFile file(directory_ / "meta.json");
  file.write(meta_to_json(meta_));
  file.prepare();  // all that needs space is done: a full disk cannot come between the old corpus and the new one
  try {
    move_up();
    file.commit();  // this is the switch
    if (replaces_) remove_generation(1 - meta_.generation, /*with_tokenizer=*/true);
    fs::remove(unfinished_);
  } catch (const fs::filesystem_error& error) {
    refuse(error.code().message());
  }
  return meta_;
}

// Beside the files of the old corpus, none of which has such a name.
void ShardWriter::move_up() {
  const std::set<std::string> names = names_in(unfinished_);
  moving_ = true;
  for (const std::string& name : names) fs::rename(unfinished_ / name, directory_ / name);
  sync_directory(directory_);
}

void ShardWriter::remove_generation(int generation, bool with_tokenizer) const {
  for (const std::string& name : names_in(directory_)) {
    if (is_shard_name(name, generation)) fs::remove(directory_ / name);
  }
  if (with_tokenizer) fs::remove_all(tokenizer_folder(directory_, generation));
}

}  // namespace deltanet::data
