#include "data/unicode/unicode.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/flat_map.h"
#include "deltanet/error.h"

namespace deltanet::data {
namespace {

constexpr char32_t kEnd = 0x110000;

// Numbers in base 32, lowest digit first, of which all digits but the last have 32 added.
uint32_t take_number(std::string_view& text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";
  uint32_t value = 0;
  for (int shift = 0;; shift += 5) {
    const auto digit = static_cast<uint32_t>(kDigits.find(text.front()));
    text.remove_prefix(1);
    value |= (digit & 31) << shift;
    if (digit < 32) return value;
  }
}

}  // namespace

CharSet CharSet::range(char32_t first, char32_t last) {
  CharSet set;
  set.toggles_ = {first, last + 1};
  return set;
}

bool CharSet::contains(char32_t code) const {
  const auto behind = std::upper_bound(toggles_.begin(), toggles_.end(), code);
  return (behind - toggles_.begin()) % 2 == 1;
}

CharSet CharSet::operator|(const CharSet& other) const {
  CharSet result;
  std::size_t i = 0, k = 0;
  bool inside = false;
  while (i < toggles_.size() || k < other.toggles_.size()) {
    const char32_t left = i < toggles_.size() ? toggles_[i] : kEnd + 1;
    const char32_t right = k < other.toggles_.size() ? other.toggles_[k] : kEnd + 1;
    const char32_t at = std::min(left, right);
    if (left == at) ++i;
    if (right == at) ++k;
    const bool now = i % 2 == 1 || k % 2 == 1;
    if (now != inside) result.toggles_.push_back(at);
    inside = now;
  }
  return result;
}

CharSet CharSet::operator~() const {
  CharSet result = *this;
  auto& toggles = result.toggles_;
  if (!toggles.empty() && toggles.front() == 0) {
    toggles.erase(toggles.begin());
  } else {
    toggles.insert(toggles.begin(), 0);
  }
  if (!toggles.empty() && toggles.back() == kEnd) {
    toggles.pop_back();
  } else {
    toggles.push_back(kEnd);
  }
  return result;
}

CharClasses::CharClasses(std::span<const CharSet> sets) : members_(sets.size()) {
  std::vector<char32_t> places = {0, kEnd};
  for (const CharSet& set : sets) places.insert(places.end(), set.toggles().begin(), set.toggles().end());
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());

  std::map<std::string, uint8_t> classes;    // by which sets they belong to
  std::vector<std::size_t> at(sets.size());  // toggles of each set that are behind
  std::vector<uint8_t> all(kEnd);
  for (std::size_t i = 0; i + 1 < places.size(); ++i) {
    std::string key(sets.size(), '0');
    for (std::size_t s = 0; s < sets.size(); ++s) {
      const auto& toggles = sets[s].toggles();
      if (at[s] < toggles.size() && toggles[at[s]] == places[i]) ++at[s];
      if (at[s] % 2 == 1) key[s] = '1';
    }
    const auto [found, is_new] = classes.try_emplace(key, static_cast<uint8_t>(count_));
    if (is_new) {
      if (++count_ > 256) throw Error("[regex] pattern: given more than 256 kinds of characters; expected fewer");
      for (std::size_t s = 0; s < sets.size(); ++s) {
        if (key[s] == '1') members_[s].push_back(found->second);
      }
    }
    std::fill(all.begin() + places[i], all.begin() + places[i + 1], found->second);
  }

  std::map<std::string_view, int32_t> known;
  const std::string_view bytes(reinterpret_cast<const char*>(all.data()), all.size());
  for (std::size_t page = 0; page < kPages; ++page) {
    const auto [found, is_new] = known.try_emplace(bytes.substr(page * kPage, kPage), pages_.size());
    first_[page] = found->second;
    if (is_new) pages_.insert(pages_.end(), found->first.begin(), found->first.end());
  }
}

std::optional<CharSet> unicode_set(std::string_view name) {
  for (const UnicodeAlias& alias : kUnicodeAliases) {
    if (alias.alias == name) name = alias.name;
  }
  for (const EncodedSet& set : kUnicodeSets) {
    if (set.name != name) continue;
    CharSet result;
    char32_t at = 0;
    for (std::string_view rest = set.toggles; !rest.empty();) result.toggles_.push_back(at += take_number(rest));
    return result;
  }
  return {};
}

char32_t to_lower(char32_t code) {
  static const FlatMap<char32_t> kLower = [] {
    FlatMap<char32_t> lower;
    char32_t first = 0;
    for (std::string_view rest = kLowerRuns; !rest.empty();) {
      first += take_number(rest);
      const uint32_t last = take_number(rest), step = take_number(rest) + 1, distance = take_number(rest);
      for (uint32_t i = 0; i <= last; ++i) {
        const char32_t capital = first + i * step;
        lower.set(capital, distance % 2 == 0 ? capital + distance / 2 : capital - distance / 2);
      }
    }
    return lower;
  }();
  const char32_t* found = kLower.find(code);
  return found == nullptr ? code : *found;
}

}  // namespace deltanet::data
