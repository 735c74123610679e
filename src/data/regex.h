#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace deltanet::data {

// The patterns of tokenizer.json: written for Oniguruma, run by PCRE2. Texts are valid UTF-8.
class Regex {
 public:
  explicit Regex(std::string_view pattern);       // throws Error when it cannot be used
  static Regex literal(const std::string& text);  // matches exactly this text

  struct Match {
    std::size_t begin, end;
  };
  // The first match that begins at or after `from`.
  std::optional<Match> find(std::string_view text, std::size_t from) const;

  // Calls part(begin, end, is_match) for the matches and what lies between them, in order. A match may be empty, but
  // never directly after another match.
  template <class Part>
  void for_each(std::string_view text, const Part& part) const {
    std::size_t done = 0, from = 0;
    bool matched = false;  // is there a match that ends at `done`?
    while (from <= text.size()) {
      const std::optional<Match> match = find(text, from);
      if (!match) break;
      if (match->begin == match->end && matched && match->end == done) {
        from = next_char(text, from);
        continue;
      }
      if (match->begin > done) part(done, match->begin, false);
      part(match->begin, match->end, true);
      done = from = match->end;
      matched = true;
    }
    if (done < text.size()) part(done, text.size(), false);
  }

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code);
  static std::size_t next_char(std::string_view text, std::size_t from);

  std::shared_ptr<const Code> code_;
};

// The same pattern in PCRE2's dialect. The classes \s \w \d \h differ between the two; what has no translation throws
// Error.
std::string to_pcre2(std::string_view pattern);

// What \w means to Rust's regex crate, as the members of a character class.
inline constexpr std::string_view kRustWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D})";

}  // namespace deltanet::data
