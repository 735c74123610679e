// What regular expressions, normalizers and pre-tokenizers make of all characters is what Hugging Face's tokenizers
// makes of them, whatever Unicode the machine's libraries know: tests/golden/tokenizers/unicode.json, made by
// tests/python/make_unicode.py.

#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "data/tokenizer/json_field.h"
#include "data/tokenizer/normalizers.h"
#include "data/tokenizer/pre_tokenizers.h"
#include "data/unicode/char_properties.h"
#include "data/unicode/utf8.h"
#include "deltanet/error.h"

namespace deltanet::test {
namespace {

using data::CharClasses;
using data::CharSet;
using data::JsonField;
using nlohmann::json;

const json& golden() {
  static const json kGolden =
      json::parse(std::ifstream(std::filesystem::path(DELTANET_SOURCE_DIR) / "tests/golden/tokenizers/unicode.json"));
  return kGolden;
}

uint32_t crc(const std::string& text) {
  return static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size())));
}

template <class Add>
std::string for_all_characters(const Add& add) {
  std::string text;
  for (char32_t code = 0; code <= data::kLastChar; ++code) {
    if (code < 0xD800 || code >= 0xE000) add(text, code);
  }
  return text;
}

const std::map<std::string, std::string>& texts() {
  static const std::map<std::string, std::string> kTexts = {
      {"all", for_all_characters([](std::string& text, char32_t code) { data::append_utf8(text, code); })},
      {"marked", for_all_characters([](std::string& text, char32_t code) {
         if (code >= 0x30000 || (code >= 0x3400 && code < 0xF900)) return;  // many and alike
         text += 'e';
         data::append_utf8(text, code);
         text += "\u0316\u0338\u3099\u1161";
       })}};
  return kTexts;
}

std::string members_of(const CharSet& set) {
  const CharSet characters = set & ~CharSet::range(0xD800, 0xDFFF);
  std::string text;
  for (std::size_t i = 0; i < characters.toggles().size(); i += 2) {
    for (char32_t code = characters.toggles()[i]; code < characters.toggles()[i + 1]; ++code) {
      data::append_utf8(text, code);
    }
  }
  return text;
}

TEST(Unicode, PropertiesAreThoseOfOniguruma) {
  for (const auto& [name, expected] : golden()["properties"].items()) {
    const auto set = data::property_set(name);
    ASSERT_TRUE(set) << name;
    EXPECT_EQ(crc(members_of(*set)), expected) << name;
  }
  for (const auto& [name, expected] : golden()["posix"].items()) {
    EXPECT_EQ(crc(members_of(data::posix_set(name).value())), expected) << name;
  }
  EXPECT_EQ(data::property_set("  han_-"), data::property_set("Hani"));
  for (const char* name : {"", "Hanx", "rust word", "rustword", "unknown to normal forms", "Script=Han", "sc"}) {
    EXPECT_EQ(data::property_set(name).has_value(), std::string(name) == "sc") << name;
  }
}

TEST(Unicode, NormalizersDoAsTokenizers) {
  for (const json& test : golden()["normalizers"]) {
    const auto normalizer = data::read_normalizer(JsonField(test[0], "unicode.json", ""));
    data::NormalText text{texts().at(test[1]), true};
    normalizer->apply(text);
    EXPECT_EQ(crc(text.text), test[2]) << test;
  }
}

TEST(Unicode, PreTokenizersDoAsTokenizers) {
  for (const json& test : golden()["pre_tokenizers"]) {
    const auto pre_tokenizer = data::read_pre_tokenizer(JsonField(test[0], "unicode.json", ""));
    std::string pieces;
    pre_tokenizer->split({texts().at(test[1]), true}, [&](const data::Piece& piece) {
      pieces += piece.text;
      pieces += '\0';
    });
    EXPECT_EQ(crc(pieces), test[2]) << test;
  }
}

TEST(CharSet, IsASetOfCharacters) {
  const CharSet none, all = CharSet::range(0, data::kLastChar), middle = CharSet::range('b', 'd');
  EXPECT_EQ(~none, all);
  EXPECT_EQ(~all, none);
  EXPECT_EQ(~~middle, middle);
  EXPECT_EQ(middle | ~middle, all);
  EXPECT_EQ(middle & ~middle, none);
  EXPECT_EQ(CharSet::one('b') | CharSet::range('c', 'd'), middle);
  EXPECT_EQ(CharSet::range(0, 'c') & CharSet::range('b', data::kLastChar), CharSet::range('b', 'c'));
  EXPECT_TRUE(middle.contains('b') && middle.contains('d') && !middle.contains('a') && !middle.contains('e'));
  EXPECT_TRUE(all.contains(0) && all.contains(data::kLastChar));
}

TEST(CharClasses, TellSetsApart) {
  const std::vector<CharSet> sets = {CharSet::range('a', 'z'), CharSet::range('m', 0x3000), CharSet()};
  const CharClasses classes(sets);
  EXPECT_EQ(classes.count(), 4u);
  for (const char32_t code : {U'\0', U'a', U'l', U'm', U'z', U'{', U'\u3000', U'\u3001', U'\U0010FFFF'}) {
    for (std::size_t i = 0; i < sets.size(); ++i) {
      const auto& members = classes.members(i);
      EXPECT_EQ(std::find(members.begin(), members.end(), classes.of(code)) != members.end(), sets[i].contains(code));
    }
  }
  std::vector<CharSet> many;
  for (char32_t code = 0; code < 255; ++code) many.push_back(CharSet::one(0x4E00 + 2 * code));
  EXPECT_EQ(CharClasses(many).count(), 256u);
  many.push_back(CharSet::one('a'));
  EXPECT_THROW(CharClasses{many}, Error);
}

}  // namespace
}  // namespace deltanet::test
