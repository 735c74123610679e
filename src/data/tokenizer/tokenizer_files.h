#pragma once

#include <filesystem>
#include <map>
#include <string>

// The files of a tokenizer, which go along with what belongs to it: checkpoints and shards of tokens.

namespace deltanet::data {

using NamedFiles = std::map<std::string, std::string>;  // contents by name

// The tokenizer of a directory and its settings: what belongs to a checkpoint besides its weights and config.json.
NamedFiles read_companions(const std::filesystem::path& directory);

// Those of a tokenizer as load_tokenizer() takes it, under names by which it finds the same tokenizer in the directory
// that they are put into. "bytes" has none.
NamedFiles read_tokenizer_files(const std::string& tokenizer);

// True if load_tokenizer() finds one in the directory.
bool has_tokenizer(const std::filesystem::path& directory);

}  // namespace deltanet::data
