#include <algorithm>
#include <cstdio>
#include <limits>

#include "base/json.h"
#include "data/corpus/shards.h"
#include "deltanet/error.h"

namespace deltanet::data {
namespace {

using nlohmann::json;

constexpr int kVersion = 2;  // 1: without generation
constexpr int64_t kLargestVocabulary = std::numeric_limits<int32_t>::max();
constexpr int64_t kMostTokens = int64_t{1} << 44;  // in a file; their sum cannot overflow

// The members of meta.json, each with its range.
class MetaReader {
 public:
  MetaReader(const json& object, std::string name) : object_(object), name_(std::move(name)) {
    if (!object_.is_object()) refuse("no object", "an object");
  }

  [[noreturn]] void refuse(const std::string& given, const std::string& expected) const {
    throw Error("[open_shards] " + name_ + ": given " + given + "; expected " + expected);
  }

  const json& at(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) refuse(std::string("no \"") + key + "\"", "one");
    return *found;
  }

  int64_t integer(const char* key, int64_t lowest, int64_t highest) const {
    const json& value = at(key);
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() || value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)) &&
                      value.get<int64_t>() >= lowest && value.get<int64_t>() <= highest;
    if (!fits) {
      refuse(std::string(key) + " = " + in_quotes(value.dump(-1, ' ', true, json::error_handler_t::replace)),
             "an integer from " + std::to_string(lowest) + " to " + std::to_string(highest));
    }
    return value.get<int64_t>();
  }

  std::string text(const char* key) const {
    const json& value = at(key);
    if (!value.is_string()) refuse(std::string("a \"") + key + "\" that is no text", "a text");
    return value.get<std::string>();
  }

 private:
  const json& object_;
  std::string name_;
};

const char* dtype_of(int64_t vocab_size) { return token_bytes(vocab_size) == 2 ? "u16" : "u32"; }

}  // namespace

int64_t ShardMeta::tokens() const {
  int64_t sum = 0;
  for (const ShardInfo& shard : shards) sum += shard.tokens;
  return sum;
}

int64_t ShardMeta::documents() const {
  int64_t sum = 0;
  for (const ShardInfo& shard : shards) sum += shard.documents;
  return sum;
}

std::filesystem::path shard_path(const std::filesystem::path& directory, std::size_t shard, const char* extension,
                                 int generation) {
  char name[40];
  std::snprintf(name, sizeof name, "shard-%05zu%s%s", shard, generation == 0 ? "" : ".1", extension);
  return directory / name;
}

std::filesystem::path tokenizer_folder(const std::filesystem::path& directory, int generation) {
  return directory / (generation == 0 ? "tokenizer" : "tokenizer.1");
}

std::size_t token_bytes(int64_t vocab_size) { return vocab_size <= 1 << 16 ? 2 : 4; }

std::string meta_to_json(const ShardMeta& meta) {
  nlohmann::ordered_json shards = nlohmann::ordered_json::array();
  for (const ShardInfo& shard : meta.shards)
    shards.push_back({{"tokens", shard.tokens}, {"documents", shard.documents}});
  nlohmann::ordered_json object = {
      {"format", "deltanet-tokens"},
      {"version", meta.generation == 0 ? 1 : kVersion},
      {"dtype", dtype_of(meta.vocab_size)},
      {"vocab_size", meta.vocab_size},
      {"largest_id", meta.largest_id},
      {"eos", meta.eos ? nlohmann::ordered_json(*meta.eos) : nlohmann::ordered_json()},
      {"tokenizer", meta.tokenizer},
      {"tokens", meta.tokens()},
      {"documents", meta.documents()},
      {"shards", std::move(shards)},
  };
  if (meta.generation != 0) object["generation"] = meta.generation;
  return object.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

ShardMeta meta_from_json(std::string_view text, const std::string& name) {
  const json object = parse_json(text, "open_shards " + name);
  const MetaReader reader(object, name);
  if (reader.text("format") != "deltanet-tokens") {
    reader.refuse("format = " + in_quotes(reader.text("format")), "deltanet-tokens");
  }
  ShardMeta meta;
  if (reader.integer("version", 1, kVersion) > 1)
    meta.generation = static_cast<int>(reader.integer("generation", 0, 1));
  meta.vocab_size = reader.integer("vocab_size", 1, kLargestVocabulary);
  if (reader.text("dtype") != dtype_of(meta.vocab_size)) {
    reader.refuse("dtype = " + in_quotes(reader.text("dtype")),
                  std::string(dtype_of(meta.vocab_size)) + " for a vocabulary of this size");
  }
  if (!reader.at("eos").is_null()) meta.eos = static_cast<int32_t>(reader.integer("eos", 0, meta.vocab_size - 1));
  meta.tokenizer = reader.text("tokenizer");
  const json& shards = reader.at("shards");
  if (!shards.is_array() || shards.size() > kMostShards) {
    reader.refuse("shards that are no list of at most " + std::to_string(kMostShards), "one");
  }
  for (const json& shard : shards) {
    const MetaReader entry(shard, name + ": shard " + std::to_string(meta.shards.size()));
    ShardInfo info;
    info.tokens = entry.integer("tokens", 1, kMostTokens);
    info.documents = entry.integer("documents", 0, info.tokens);
    meta.shards.push_back(info);
  }
  // Only an empty corpus has no largest id.
  const int64_t lowest = meta.shards.empty() ? -1 : 0, highest = meta.shards.empty() ? -1 : meta.vocab_size - 1;
  meta.largest_id = static_cast<int32_t>(reader.integer("largest_id", lowest, highest));
  reader.integer("tokens", meta.tokens(), meta.tokens());
  reader.integer("documents", meta.documents(), meta.documents());
  return meta;
}

}  // namespace deltanet::data
