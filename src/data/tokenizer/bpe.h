#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/flat_map.h"
#include "data/tokenizer/json_field.h"
#include "data/tokenizer/word_cache.h"

namespace deltanet::data {

inline constexpr int64_t kMaxId = (1 << 24) - 1;  // far above any vocabulary; bounds the memory that a file can ask for

// The byte-pair model of tokenizer.json: a word starts as its characters, and the adjacent pair with the lowest rank is
// joined until none has a rank.
class Bpe {
 public:
  explicit Bpe(const JsonField& model);

  // What encode() works with: its buffers, and the ids of words that it met. For one thread at a time.
  class Scratch {
   private:
    friend class Bpe;
    struct Symbol {
      int32_t id;
      int32_t previous, next;  // -1: none
      bool alive;
    };
    struct Candidate {
      uint64_t order;  // rank, then position: the heap gives the lowest first
      int32_t id;      // of the joined token
    };
    std::vector<Symbol> symbols_;
    std::vector<Candidate> heap_;
    WordCache words_;
  };

  // Appends the ids of a word; valid UTF-8.
  void encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;

  std::optional<int32_t> id_of(std::string_view token) const;
  const std::string& token(int32_t id) const;  // empty: no token has this id
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }

 private:
  struct Merge {
    int32_t rank, id;
  };
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  void read_vocab(const JsonField& field);
  void read_merges(const JsonField& field);
  void index_characters();
  bool can_cut(char32_t left, char32_t right) const;
  void encode_cached(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;
  void encode_word(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;
  void start_symbols(std::string_view word, Scratch& scratch) const;
  void merge_symbols(Scratch& scratch) const;

  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
  std::vector<std::string> tokens_;
  FlatMap<Merge> merges_;           // by (left id, right id)
  FlatMap<int32_t> characters_;     // tokens of one character, by code point
  FlatMap<bool> inside_;            // pairs of characters that stand side by side in a token that merges make
  std::vector<int32_t> byte_ids_;   // <0x00> ... <0xFF>, -1: none; empty: no byte fallback
  std::optional<int32_t> unknown_;  // the id for characters that are not in the vocabulary
  bool fuse_unknown_ = false, ignore_merges_ = false;
};

}  // namespace deltanet::data
