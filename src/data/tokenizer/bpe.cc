#include "data/tokenizer/bpe.h"

#include <algorithm>

#include "data/unicode/utf8.h"
#include "deltanet/error.h"

namespace deltanet::data {
namespace {

constexpr std::size_t kMaxWord = INT32_MAX / 2;  // bytes

uint64_t pair_key(uint32_t left, uint32_t right) { return static_cast<uint64_t>(left) << 32 | right; }
uint64_t pair_key(int32_t left, int32_t right) {
  return pair_key(static_cast<uint32_t>(left), static_cast<uint32_t>(right));
}

constexpr auto kLater = [](const auto& a, const auto& b) { return a.order > b.order; };

}  // namespace

std::optional<int32_t> Bpe::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return {};
  return found->second;
}

const std::string& Bpe::token(int32_t id) const {
  static const std::string kNone;
  return id < size() ? tokens_[static_cast<std::size_t>(id)] : kNone;
}

void Bpe::encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const {
  if (ignore_merges_) {
    if (const auto id = id_of(word)) return ids.push_back(*id);
  }
  if (word.size() <= WordCache::kMaxWord) return encode_cached(word, scratch, ids);
  if (word.size() > kMaxWord) throw Error("[encode] text: given a word of " + std::to_string(word.size()) + " bytes");

  // Files without a pre-tokenizer give a whole text as one word. No merge joins what stands left and right of a place
  // where two characters meet that meet in no token: the parts can be encoded one by one, with the same result.
  std::size_t begin = 0, at = 0;
  char32_t left = 0;
  while (at < word.size()) {
    const Utf8Char right = first_char(word.substr(at));
    if (at > begin && can_cut(left, right.code)) {
      encode_cached(word.substr(begin, at - begin), scratch, ids);
      begin = at;
    }
    left = right.code;
    at += right.size;
  }
  encode_cached(word.substr(begin), scratch, ids);
}

bool Bpe::can_cut(char32_t left, char32_t right) const {
  // Unknown characters may fuse or turn into several symbols, so only known ones are looked at.
  return inside_.find(pair_key(left, right)) == nullptr && characters_.find(left) != nullptr &&
         characters_.find(right) != nullptr;
}

void Bpe::encode_cached(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const {
  if (word.size() > WordCache::kMaxWord) return encode_word(word, scratch, ids);
  const auto& known = scratch.words_.ids(word, [&](std::vector<int32_t>& fresh) { encode_word(word, scratch, fresh); });
  ids.insert(ids.end(), known.begin(), known.end());
}

void Bpe::encode_word(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const {
  start_symbols(word, scratch);
  merge_symbols(scratch);
  for (const Scratch::Symbol& symbol : scratch.symbols_) {
    if (symbol.alive) ids.push_back(symbol.id);
  }
}

void Bpe::start_symbols(std::string_view word, Scratch& scratch) const {
  scratch.symbols_.clear();
  const auto add = [&](int32_t id) {
    const auto at = static_cast<int32_t>(scratch.symbols_.size());
    if (at > 0) scratch.symbols_.back().next = at;
    scratch.symbols_.push_back({id, at - 1, -1, true});
  };
  // An unknown token is put down only when a known character follows or the word ends: bytes that come in between go
  // before it. That is odd, but it is what the library that defined these files does.
  bool waiting = false;
  while (!word.empty()) {
    const Utf8Char c = first_char(word);
    const std::string_view bytes = word.substr(0, c.size);
    word.remove_prefix(c.size);
    if (const int32_t* id = characters_.find(c.code)) {
      if (waiting) add(*unknown_);
      waiting = false;
      add(*id);
      continue;
    }
    const auto byte_id = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
    if (!byte_ids_.empty() && std::all_of(bytes.begin(), bytes.end(), [&](char b) { return byte_id(b) >= 0; })) {
      for (const char byte : bytes) add(byte_id(byte));
      continue;
    }
    if (!unknown_) continue;
    if (waiting && !fuse_unknown_) add(*unknown_);
    waiting = true;
  }
  if (waiting) add(*unknown_);
}

void Bpe::merge_symbols(Scratch& scratch) const {
  auto& symbols = scratch.symbols_;
  auto& heap = scratch.heap_;
  heap.clear();
  const auto merge_at = [&](int32_t left) -> const Merge* {
    const int32_t right = symbols[left].next;
    return right < 0 ? nullptr : merges_.find(pair_key(symbols[left].id, symbols[right].id));
  };
  const auto candidate = [](int32_t at, const Merge& merge) {
    return Scratch::Candidate{static_cast<uint64_t>(merge.rank) << 32 | static_cast<uint32_t>(at), merge.id};
  };
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
    const auto at = static_cast<int32_t>(i);
    if (const Merge* merge = merge_at(at)) heap.push_back(candidate(at, *merge));
  }
  std::make_heap(heap.begin(), heap.end(), kLater);

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), kLater);
    const Scratch::Candidate top = heap.back();
    heap.pop_back();
    const auto at = static_cast<int32_t>(top.order & 0xFFFFFFFFu);
    Scratch::Symbol& left = symbols[at];
    if (!left.alive) continue;
    // A candidate is out of date when one of its symbols has been joined with another since.
    const Merge* merge = merge_at(at);
    if (merge == nullptr || merge->id != top.id) continue;

    Scratch::Symbol& right = symbols[left.next];
    right.alive = false;
    left.id = top.id;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = at;
    for (const int32_t begin : {left.previous, at}) {
      if (begin < 0) continue;
      if (const Merge* next = merge_at(begin)) {
        heap.push_back(candidate(begin, *next));
        std::push_heap(heap.begin(), heap.end(), kLater);
      }
    }
  }
}

}  // namespace deltanet::data
