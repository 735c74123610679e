#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/corpus/byte_source.h"

namespace deltanet::data {

// Where a text file is cut into documents. JSON lines are a document each.
enum class Split {
  kNever,       // the file is one document
  kBlankLines,  // one or more of them lie between documents
  kSeparator,   // a given text lies between documents
};

struct TextOptions {
  std::string field = "text";  // of a JSON line, that holds its document
  Split split = Split::kNever;
  std::string separator = {};         // for kSeparator; without line breaks
  std::size_t block_bytes = 1 << 20;  // about so many are handed out at once
};

// A part of one file: whole lines of JSON, or text cut where hardly any tokenizer would join.
struct TextBlock {
  std::string bytes;
  std::size_t file = 0;  // in TextSource::files()
  int64_t line = 1;      // number of its first line
  bool begins_line = true, ends_file = false;
  int64_t bytes_done = 0;  // of bytes_total(), up to the end of this block
};

// The documents of a corpus, read from front to back in blocks, so that a corpus of any size takes little memory:
// text files, JSON lines (.jsonl, .ndjson, .json), and both packed (.gz, .zst). Where blocks end depends on the files
// and the options only.
class TextSource {
 public:
  // Inputs are files and directories; of a directory, all text (.txt, .md) and JSON files in it and below, by name, but
  // nothing hidden and nothing that `deltanet tokenize` wrote. Throws Error if one does not exist or there is nothing
  // to read.
  explicit TextSource(const std::vector<std::string>& inputs, TextOptions options = {});

  // The next block; false at the end of the corpus. One thread at a time.
  bool next(TextBlock& block);

  // Calls part(text, ends_document) for the documents of a block, in order: a document may come in several parts, also
  // across blocks, and its last part may be empty. Documents without text may appear. Any number of threads at once.
  // Throws Error with file and line for bad JSON and for lines without the field; halves of surrogate pairs become
  // U+FFFD.
  using Part = std::function<void(std::string_view text, bool ends_document)>;
  void split(const TextBlock& block, const Part& part) const;

  const std::vector<std::filesystem::path>& files() const { return files_; }
  int64_t bytes_total() const { return bytes_total_; }                  // on disk
  int64_t replaced_surrogates() const { return replaced_surrogates_; }  // by split(), so far

 private:
  void split_json(const TextBlock& block, const Part& part) const;
  std::string document_of(std::string_view line, const std::filesystem::path& path, int64_t number) const;
  bool read_more();  // to waiting_; false at the end of the file
  std::size_t cut_of_text() const;
  std::size_t cut_of_json() const;

  TextOptions options_;
  std::vector<std::filesystem::path> files_;
  int64_t bytes_total_ = 0;

  std::size_t file_ = 0;                // that is read
  std::unique_ptr<ByteSource> source_;  // null: not opened yet
  std::string waiting_;                 // read, but not handed out
  bool begins_line_ = true;             // does waiting_?
  int64_t line_ = 1;                    // number of the first line in waiting_
  int64_t files_done_bytes_ = 0;        // of the files before
  mutable std::atomic<int64_t> replaced_surrogates_ = 0;
};

}  // namespace deltanet::data
