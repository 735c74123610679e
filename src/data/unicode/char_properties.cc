#include "data/unicode/char_properties.h"

#include <string>
#include <utility>

#include "deltanet/error.h"

namespace deltanet::data {
namespace {

constexpr std::pair<std::string_view, std::string_view> kLongNames[] = {
    {"letter", "l"},
    {"casedletter", "lc"},
    {"uppercaseletter", "lu"},
    {"lowercaseletter", "ll"},
    {"titlecaseletter", "lt"},
    {"modifierletter", "lm"},
    {"otherletter", "lo"},
    {"mark", "m"},
    {"combiningmark", "m"},
    {"nonspacingmark", "mn"},
    {"spacingmark", "mc"},
    {"enclosingmark", "me"},
    {"number", "n"},
    {"decimalnumber", "nd"},
    {"letternumber", "nl"},
    {"othernumber", "no"},
    {"punctuation", "p"},
    {"connectorpunctuation", "pc"},
    {"dashpunctuation", "pd"},
    {"openpunctuation", "ps"},
    {"closepunctuation", "pe"},
    {"initialpunctuation", "pi"},
    {"finalpunctuation", "pf"},
    {"otherpunctuation", "po"},
    {"symbol", "s"},
    {"mathsymbol", "sm"},
    {"currencysymbol", "sc"},
    {"modifiersymbol", "sk"},
    {"othersymbol", "so"},
    {"separator", "z"},
    {"spaceseparator", "zs"},
    {"lineseparator", "zl"},
    {"paragraphseparator", "zp"},
    {"other", "c"},
    {"control", "cc"},
    {"format", "cf"},
    {"privateuse", "co"},
    {"unassigned", "cn"},
    {"alpha", "alphabetic"},
    {"upper", "uppercase"},
    {"lower", "lowercase"},
    {"space", "whitespace"},
    {"digit", "nd"},
};

CharSet any_of(std::initializer_list<std::string_view> names) {
  CharSet result;
  for (const std::string_view name : names) result = result | category(name);
  return result;
}

std::optional<CharSet> find_category(std::string_view name) {
  if (name == "l") return any_of({"ll", "lm", "lo", "lt", "lu"});
  if (name == "lc") return any_of({"ll", "lt", "lu"});
  if (name == "m") return any_of({"mc", "me", "mn"});
  if (name == "n") return any_of({"nd", "nl", "no"});
  if (name == "p") return any_of({"pc", "pd", "pe", "pf", "pi", "po", "ps"});
  if (name == "s") return any_of({"sc", "sk", "sm", "so"});
  if (name == "z") return any_of({"zl", "zp", "zs"});
  if (name == "c") return any_of({"cc", "cf", "cn", "co"});
  if (name == "any") return CharSet::range(0, kLastChar);
  if (name == "assigned") return ~category("cn");
  if (name == "ascii") return CharSet::range(0, 0x7F);
  return unicode_set(name);
}

}  // namespace

CharSet category(std::string_view name) {
  auto found = find_category(name);
  if (!found) throw Error("[regex] the tables of characters lack \"" + std::string(name) + "\"");
  return std::move(*found);
}

std::optional<CharSet> property_set(std::string_view name) {
  std::string plain;  // case, blanks, hyphens and underscores do not count
  for (const char c : name) {
    if (c == ' ' || c == '_' || c == '-') continue;
    plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  for (const auto& [longer, category] : kLongNames) {
    if (plain == longer) plain = category;
  }
  return find_category(plain);
}

std::optional<CharSet> posix_set(std::string_view name) {
  if (name == "alnum") return any_of({"alphabetic", "nd"});
  if (name == "alpha") return category("alphabetic");
  if (name == "digit") return category("nd");
  if (name == "lower") return category("lowercase");
  if (name == "punct") return any_of({"p", "s"});
  if (name == "space") return category("whitespace");
  if (name == "upper") return category("uppercase");
  if (name == "word") return word();
  if (name == "xdigit") return hexadecimal();
  return {};
}

CharSet word() { return any_of({"alphabetic", "m", "nd", "pc"}); }

// Outside of brackets it also takes the superscripts and fractions of Latin-1, by an oddity of Oniguruma.
CharSet word_alone() { return word() | CharSet::range(0xB2, 0xB3) | CharSet::one(0xB9) | CharSet::range(0xBC, 0xBE); }

CharSet hexadecimal() { return CharSet::range('0', '9') | CharSet::range('a', 'f') | CharSet::range('A', 'F'); }

}  // namespace deltanet::data
