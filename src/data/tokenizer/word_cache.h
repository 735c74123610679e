#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace deltanet::data {

// The ids of words that were met before. Bounded: of words with one hash the last stays. For one thread at a time.
class WordCache {
 public:
  static constexpr std::size_t kMaxWord = 64;  // bytes; longer words are rarely met again

  WordCache() : words_(kSlots) {}

  // The ids of a word of at most kMaxWord bytes; unless they are known, encode(ids) appends them to an empty vector.
  template <class Encode>
  const std::vector<int32_t>& ids(std::string_view word, const Encode& encode) {
    Word& known = words_[std::hash<std::string_view>()(word) % kSlots];
    if (known.text != word) {
      known.text.clear();  // in case of an exception, the slot is empty
      known.ids.clear();
      encode(known.ids);
      known.text = word;
    }
    return known.ids;
  }

 private:
  static constexpr std::size_t kSlots = 1 << 15;
  struct Word {
    std::string text;
    std::vector<int32_t> ids;
  };
  std::vector<Word> words_;
};

}  // namespace deltanet::data
