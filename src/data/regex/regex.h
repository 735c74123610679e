#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/pool.h"

namespace deltanet::data {

// The patterns of tokenizer.json: written for Oniguruma, run by PCRE2. Texts are valid UTF-8.
//
// PCRE2 sees neither the characters nor its own tables of Unicode: every character becomes one byte that says which of
// the pattern's sets it belongs to, and the sets of the pattern are sets of such bytes.
class Regex {
 public:
  explicit Regex(std::string_view pattern);       // throws Error when it cannot be used
  static Regex literal(const std::string& text);  // matches exactly this text

  // Calls part(begin, end, is_match) for the matches and what lies between them, in order. A match may be empty, but
  // never directly after another match.
  template <class Part>
  void for_each(std::string_view text, const Part& part) const {
    Search search(*this, text);
    std::size_t done = 0, from = 0;  // in steps of the search
    bool matched = false;            // is there a match that ends at `done`?
    while (from <= search.size()) {
      const std::optional<Match> match = search.find(from);
      if (!match) break;
      if (match->begin == match->end && matched && match->end == done) {
        ++from;
        continue;
      }
      const std::size_t end_before = search.byte_of(done), begin = search.byte_of(match->begin);
      if (begin > end_before) part(end_before, begin, false);
      part(begin, search.byte_of(match->end), true);
      done = from = match->end;
      matched = true;
    }
    if (const std::size_t begin = search.byte_of(done); begin < text.size()) part(begin, text.size(), false);
  }

 private:
  struct Code;
  struct Match {
    std::size_t begin, end;
  };

  // One text. Its steps are characters, or bytes where the pattern is a literal.
  class Search {
   public:
    Search(const Regex& regex, std::string_view text);
    ~Search();
    Search(const Search&) = delete;
    Search& operator=(const Search&) = delete;

    std::size_t size() const { return size_; }
    std::optional<Match> find(std::size_t from) const;  // the first match that begins at or after `from`
    std::size_t byte_of(std::size_t step);              // steps are asked for in order

   private:
    const Regex& regex_;
    std::string_view text_;
    Pool<std::string>::Loan classes_;  // of the characters
    std::size_t size_ = 0;
    bool steps_are_bytes_ = true;
    std::size_t step_ = 0, byte_ = 0;  // the last answer of byte_of
  };

  Regex() = default;

  std::shared_ptr<const Code> code_;  // null: a literal
  std::string literal_;
};

}  // namespace deltanet::data
