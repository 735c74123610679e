#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/corpus/token_store.h"
#include "data/tokenizer/tokenizer_files.h"

// A corpus of tokens on disk: a directory with
//
//   meta.json         what is in it; written last, so that an unfinished directory never looks complete
//   shard-00000.bin   tokens, little-endian, two bytes each (vocabularies up to 65536) or four
//   shard-00001.bin   what follows them: files may end inside a document
//   ...
//   shard-00000.idx   where documents start in shard-00000.bin: numbers of tokens, little-endian, eight bytes each
//   ...
//   tokenizer/        files of the tokenizer, so that training can hand them on; none for bytes
//   .unfinished/      files of a corpus that is being written; they move up when all of them are complete
//
// A corpus that takes the place of another has the other one's names with ".1" in them (shard-00000.1.bin,
// tokenizer.1), or, the next time, without it again: both lie there until a new meta.json, which says which names
// count, has replaced the old one at once.

namespace deltanet::data {

inline constexpr std::size_t kMostShards = 100'000;  // as many as have names of one length

struct ShardInfo {
  int64_t tokens = 0, documents = 0;  // documents: that start in it
};

struct ShardMeta {
  int64_t vocab_size = 0;
  int32_t largest_id = -1;
  int generation = 0;          // 0 or 1: which of the two sets of names its files have
  std::optional<int32_t> eos;  // stands at the end of every document
  std::string tokenizer;       // where it came from, for people
  std::vector<ShardInfo> shards;

  int64_t tokens() const;
  int64_t documents() const;
};

// True if the directory holds a complete corpus of tokens.
bool is_token_directory(const std::filesystem::path& directory);
// Its meta.json.
ShardMeta read_meta(const std::filesystem::path& directory);

struct ShardOptions {
  int64_t vocab_size = 0;
  std::optional<int32_t> eos = {};  // put behind every document
  std::string tokenizer = {};
  NamedFiles tokenizer_files = {};
  int64_t shard_tokens = int64_t{1} << 28;
  bool replace = false;  // a complete corpus that is already there
};

// Writes such a directory, document after document. Before finish() a corpus that is replaced stays as it was, and
// without one there is no meta.json.
class ShardWriter {
 public:
  // Makes the directory, and removes what an unfinished run left there. A meta.json or a folder of a tokenizer
  // that is part of something else is an Error, and so is another writer.
  ShardWriter(std::filesystem::path directory, const ShardOptions& options);
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  void append(std::span<const int32_t> ids);  // to the open document; an Error for ids outside the vocabulary
  void end_document();                        // a document without tokens leaves nothing behind
  // Ends the last document, completes the directory and takes the old corpus away. A crash at any moment leaves the old
  // corpus or the new one.
  const ShardMeta& finish();

  int64_t tokens() const { return tokens_; }
  int64_t documents() const { return documents_; }

 private:
  void put(std::span<const int32_t> ids);
  void write_ids(std::span<const int32_t> ids);
  void start_shard();
  void end_shard();
  void check_old_corpus() const;
  void move_up();
  void remove_generation(int generation, bool with_tokenizer) const;
  [[noreturn]] void refuse(const std::string& what) const;

  std::filesystem::path directory_, unfinished_;
  ShardOptions options_;
  ShardMeta meta_;
  std::optional<AtomicFile> file_;  // of the open shard
  int64_t shard_tokens_ = 0;        // in it
  std::vector<uint64_t> starts_;    // in it
  bool inside_document_ = false;
  int64_t tokens_ = 0, documents_ = 0;
  bool replaces_ = false;  // a complete corpus
  bool moving_ = false;    // files out of unfinished_
  std::unique_ptr<DirectoryLock> lock_;
};

// Reads such a directory. Sizes, counts and starts of documents are checked here; the ids that read() copies are
// checked as they are copied, so that damaged data never reach a model.
class ShardStore final : public TokenStore {
 public:
  explicit ShardStore(const std::filesystem::path& directory);

  const ShardMeta& meta() const { return meta_; }

  int64_t size() const override { return begins_.back(); }
  int32_t largest_id() const override { return meta_.largest_id; }
  std::string name() const override { return directory_.string(); }
  std::string place(int64_t token) const override;
  void read(int64_t begin, int64_t end, int32_t* ids) const override;
  std::vector<int64_t> document_starts(int64_t begin, int64_t end) const override;

 private:
  struct Shard {
    FileReader tokens, starts;
    std::vector<uint64_t> firsts = {};  // of each block of starts
  };
  void check_shard(Shard& shard, const ShardInfo& info, bool first) const;
  std::size_t shard_of(int64_t token) const;

  std::filesystem::path directory_;
  ShardMeta meta_;
  std::vector<Shard> shards_;
  std::vector<int64_t> begins_;  // of each shard in the corpus; then the size of it all
};

// Names and widths that reading and writing share.
std::filesystem::path shard_path(const std::filesystem::path& directory, std::size_t shard, const char* extension,
                                 int generation = 0);
std::filesystem::path tokenizer_folder(const std::filesystem::path& directory, int generation = 0);
std::size_t token_bytes(int64_t vocab_size);  // 2 or 4

// meta.json.
std::string meta_to_json(const ShardMeta& meta);
ShardMeta meta_from_json(std::string_view text, const std::string& name);

}  // namespace deltanet::data
