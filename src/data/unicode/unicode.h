#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace deltanet::data {

// Sets of characters and small letters as Hugging Face's tokenizers knows them, whatever Unicode the libraries of this
// machine know: the tables were made by asking it (scripts/make_unicode_tables.py).

class CharSet {
 public:
  CharSet() = default;
  static CharSet range(char32_t first, char32_t last);
  static CharSet one(char32_t code) { return range(code, code); }

  bool contains(char32_t code) const;
  bool empty() const { return toggles_.empty(); }
  CharSet operator|(const CharSet& other) const;
  CharSet operator&(const CharSet& other) const { return ~(~*this | ~other); }
  CharSet operator~() const;
  bool operator==(const CharSet&) const = default;

  // Where membership begins and ends, in turns and in order.
  const std::vector<char32_t>& toggles() const { return toggles_; }

 private:
  friend std::optional<CharSet> unicode_set(std::string_view name);
  std::vector<char32_t> toggles_;
};

// Divides all characters into as few classes as tell the given sets apart, and finds the class of a character with two
// look-ups. Throws Error for more than 256.
class CharClasses {
 public:
  explicit CharClasses(std::span<const CharSet> sets);

  uint8_t of(char32_t code) const { return pages_[static_cast<std::size_t>(first_[code / kPage]) + code % kPage]; }
  // The classes that make up a set.
  const std::vector<uint8_t>& members(std::size_t set) const { return members_[set]; }
  std::size_t count() const { return count_; }

 private:
  static constexpr std::size_t kPage = 128, kPages = 0x110000 / kPage;
  std::array<int32_t, kPages> first_;  // of each 128 characters: where their classes begin in pages_
  std::vector<uint8_t> pages_;         // equal pages are stored once; the first holds ASCII
  std::vector<std::vector<uint8_t>> members_;
  std::size_t count_ = 0;
};

// A set of the tables by its name there: a general category ("lu"), a script ("han", "hani"), a binary property
// ("whitespace"), or one of the library's own.
std::optional<CharSet> unicode_set(std::string_view name);

char32_t to_lower(char32_t code);  // of all but U+0130, whose small form is two characters

// The tables.
struct EncodedSet {
  std::string_view name, toggles;
};
struct UnicodeAlias {
  std::string_view alias, name;
};
extern const std::span<const EncodedSet> kUnicodeSets;  // by name
extern const std::span<const UnicodeAlias> kUnicodeAliases;
extern const std::string_view kLowerRuns;

}  // namespace deltanet::data
