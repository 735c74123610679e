#include "data/tokenizer/bpe_train.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/json_field.h"
#include "data/tokenizer/pre_tokenizers.h"
#include "data/unicode/utf8.h"
#include "deltanet/error.h"

namespace deltanet::data {
namespace {

using Pair = std::pair<int32_t, int32_t>;

struct Word {
  std::vector<int32_t> ids;
  int64_t count = 0;
};

struct PairHash {
  std::size_t operator()(const Pair& pair) const {
    return std::hash<uint64_t>()(static_cast<uint64_t>(pair.first) << 32 | static_cast<uint32_t>(pair.second));
  }
};
using PairCounts = std::unordered_map<Pair, int64_t, PairHash>;

// GPT-2's words, each with the number of times that it occurs.
std::map<std::string, int64_t> words_of(std::string_view text, const nlohmann::json& pre_tokenizer) {
  const std::string here = "train_bpe";
  std::map<std::string, int64_t> words;
  read_pre_tokenizer(JsonField(pre_tokenizer, here, "pre_tokenizer"))->split({text, true}, [&](const Piece& piece) {
    ++words[std::string(piece.text)];
  });
  return words;
}

void count_pairs(const Word& word, int64_t sign, PairCounts& pairs) {
  for (std::size_t i = 1; i < word.ids.size(); ++i) pairs[{word.ids[i - 1], word.ids[i]}] += sign * word.count;
}

// Of the pairs that occur most often the one with the lowest ids, so that no order of a hash table matters.
std::pair<Pair, int64_t> most_frequent(const PairCounts& pairs) {
  std::pair<Pair, int64_t> best{{}, 0};
  for (const auto& [pair, count] : pairs) {
    if (count > best.second || (count == best.second && pair < best.first)) best = {pair, count};
  }
  return best;
}

void join(const Pair& pair, int32_t id, Word& word) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < word.ids.size(); ++i) {
    const bool joins = i + 1 < word.ids.size() && word.ids[i] == pair.first && word.ids[i + 1] == pair.second;
    word.ids[kept++] = joins ? id : word.ids[i];
    i += joins ? 1 : 0;
  }
  word.ids.resize(kept);
}

bool holds(const Word& word, const Pair& pair) {
  for (std::size_t i = 1; i < word.ids.size(); ++i) {
    if (word.ids[i - 1] == pair.first && word.ids[i] == pair.second) return true;
  }
  return false;
}

}  // namespace

std::string train_bpe(std::string_view text, int64_t vocab_size) {
  constexpr int64_t kBytes = 256;
  if (vocab_size < kBytes) {
    throw Error("[train_bpe] vocab_size: given " + std::to_string(vocab_size) + "; expected 256 or more");
  }
  const std::string valid = replace_invalid_utf8(text);
  std::vector<std::string> tokens(kBytes);
  for (int64_t byte = 0; byte < kBytes; ++byte) {
    const char character = static_cast<char>(byte);
    append_byte_level(tokens[byte], {&character, 1});
  }
  std::unordered_map<std::string, int32_t> ids;
  for (int32_t id = 0; id < kBytes; ++id) ids[tokens[id]] = id;

  const nlohmann::json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  std::vector<Word> words;
  PairCounts pairs;
  for (const auto& [characters, count] : words_of(valid, byte_level)) {
    Word word{{}, count};
    for (std::string_view rest = characters; !rest.empty(); rest.remove_prefix(first_char(rest).size)) {
      word.ids.push_back(ids.at(std::string(rest.substr(0, first_char(rest).size))));
    }
    count_pairs(word, 1, pairs);
    words.push_back(std::move(word));
  }

  nlohmann::json merges = nlohmann::json::array();
  while (static_cast<int64_t>(tokens.size()) < vocab_size) {
    const auto [pair, count] = most_frequent(pairs);
    if (count < 2) break;
    merges.push_back({tokens[pair.first], tokens[pair.second]});
    const std::string joined = tokens[pair.first] + tokens[pair.second];
    const int32_t id = ids.emplace(joined, static_cast<int32_t>(tokens.size())).first->second;  // a-bc may be ab-c
    if (id == static_cast<int32_t>(tokens.size())) tokens.push_back(joined);
    for (Word& word : words) {
      if (!holds(word, pair)) continue;
      count_pairs(word, -1, pairs);
      join(pair, id, word);
      count_pairs(word, 1, pairs);
    }
    std::erase_if(pairs, [](const auto& entry) { return entry.second == 0; });
  }

  nlohmann::json vocab = nlohmann::json::object();
  for (std::size_t id = 0; id < tokens.size(); ++id) vocab[tokens[id]] = id;
  return nlohmann::json{{"version", "1.0"},
                        {"added_tokens", nlohmann::json::array()},
                        {"normalizer", nullptr},
                        {"pre_tokenizer", byte_level},
                        {"post_processor", nullptr},
                        {"decoder", byte_level},
                        {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}}
      .dump(1, ' ');
}

}  // namespace deltanet::data
