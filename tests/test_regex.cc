// Regular expressions mean what they mean to Oniguruma, as Hugging Face's tokenizers uses it, or are refused. Random
// ones are compared in tests/python/test_tokenizers.py, sets of characters in test_unicode.cc.

#include "data/regex/regex.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "deltanet/error.h"

namespace deltanet::test {
namespace {

using data::Regex;

// The text with its matches in brackets.
std::string marked(const Regex& regex, std::string_view text) {
  std::string result;
  regex.for_each(text, [&](std::size_t begin, std::size_t end, bool is_match) {
    const std::string part(text.substr(begin, end - begin));
    result += is_match ? "[" + part + "]" : part;
  });
  return result;
}

struct Example {
  const char *pattern, *text, *marked;
};

TEST(Regex, DoesAsOniguruma) {
  const Example examples[] = {
      {R"(\s+)", "\t \u00A0\u3000\u180E", "[\t \u00A0\u3000]\u180E"},  // the last is a space to PCRE2 only
      {R"(\w+)", "aé१_\u0301²!", "[aé१_\u0301²]!"},
      {R"([\w]+)", "aé१_\u0301²!", "[aé१_\u0301]²!"},
      {R"([\w-]+\W)", "a-b!", "[a-b!]"},
      {R"([\W]+)", "ab!²", "ab[!²]"},
      {R"([^\W]+)", "ab!²", "[ab]!²"},
      {R"(\h+|\H)", "0aFg", "[0aF][g]"},
      {R"(\bab\b \Bx?)", "ab ", "[ab ]"},
      {R"(\B)", "ab-", "a[]b-[]"},
      {R"((?m:a.b)|a.)", "a\nb a\n ax", "[a\nb] a\n [ax]"},
      {R"(a$\n^b)", "a\nb", "[a\nb]"},
      {R"(^)", "a\nb\n", "[]a\n[]b\n"},
      {R"($)", "a\nb\n", "a[]\nb[]\n[]"},
      {R"(\A.|.\z|.\Z)", "ab\nc\n", "[a]b\n[c]\n"},
      {R"(\u5929{,2}x)", "天天天x", "天[天天x]"},
      {R"([]a]+)", "]ab", "[]a]b"},
      {R"([^]a])", "]ab", "]a[b]"},
      {R"([a-]+[-a])", "a--b", "[a--]b"},
      {R"([\b])", "\bb", "[\b]b"},
      {R"(\x41\x{1F600}\t\e\v)", "A😀\t\x1B\v", "[A😀\t\x1B\v]"},
      {R"([[:^alpha:]]|[[:punct:]b]+)", "a1$!b", "a[1][$][!][b]"},
      {R"(\P{^L}+|\p{^L})", "ab1", "[ab][1]"},
      {R"(\p{Han}+)", "漢ー〇、", "[漢]ー[〇]、"},  // by its script alone, whatever else the bar is written with
      {R"(a(?i)b|c)", "ab aB ac aC c", "[ab] [aB] [ac] [aC] c"},
      {R"((?i)a(?-i)b|(?:(?i)c|d)c)", "Ab AB aCc cC", "[Ab] AB [aCc] cC"},
      {R"((?i:'S|k)|x)", "'s'ſK X", "['s]['ſ][K] X"},
      {R"((?i)[^a-ks])", "bKſsx", "bKſs[x]"},
      {R"((?i)天[一-龥]1)", "天天1", "[天天1]"},
      {R"((?i)s|t)", "ST", "[S][T]"},
      {"a{,}", "a{,} aaa", "[a{,}] aaa"},
      {"a{,2}", "a{,} aaa", "[a]{[],[]}[] [aa][a]"},
      {"a{x}{1{,,}", "a{x}{1{,,}", "[a{x}{1{,,}]"},
      {"a{2,3}?|a++a", "aaaaa", "[aa][aa]a"},
      {"(?>a+)b|(a)*?c|(?<=c)d(?!e)|(?<!c)d(?=e)", "aab ac cd cde de", "[aab] [ac] [c][d] [c]de [d]e"},
      {"", "ab", "[]a[]b[]"},
      {"()|", "ä", "[]ä[]"},
  };
  for (const Example& example : examples) {
    EXPECT_EQ(marked(Regex(example.pattern), example.text), example.marked) << example.pattern;
  }
}

TEST(Regex, WhatMightDifferIsRefused) {
  const std::pair<const char*, const char*> patterns[] = {
      {"a{2}?", "a question mark behind a fixed repetition at byte 4"},
      {"a{2,2}?", "a question mark behind"},
      {"a{1,2}+", "a plus behind braces"},
      {"a{3,2}", "wrong order"},
      {"a{70000}", "more than 65535"},
      {"a{99999999999}", "more than 65535"},
      {"*a", "a repetition of nothing"},
      {"a**", "a repetition of nothing"},
      {"a{2}{2}", "a repetition of nothing"},
      {"^*", "a repetition of nothing"},
      {"a|+", "a repetition of nothing"},
      {"(?=a)?", "a repetition of nothing"},
      {"{2}", "a repetition of nothing"},
      {R"(\pL)", "a \\p without braces at byte 0"},
      {R"(\p{L)", "a \\p without braces"},
      {R"(\p{Runes})", "an unknown property"},
      {"(?i)ss", "two letters that one character matches"},
      {"(?i)Ft|sT", "two letters"},
      {"(?i)(?:f)L", "two letters"},
      {"(?i)fi", "two letters"},
      {"(?i)ff", "two letters"},
      {"(?i)ß", "letters beyond ASCII where case is ignored"},
      {R"((?i)[\p{Lu}]+)", "letters beyond ASCII"},
      {R"((?i)i\x{307})", "letters beyond ASCII"},
      {"(?i)ⅷ", "letters beyond ASCII"},
      {"(?s).", "a group of this kind"},
      {"(?x: a)", "a group of this kind"},
      {"(?<n>a)", "a group of this kind"},
      {"(?#a)", "a group of this kind"},
      {"(*FAIL)", "a group with a star"},
      {R"((a)\1)", "an escape of this kind"},
      {R"(\G)", "an escape of this kind"},
      {R"(\R)", "an escape of this kind"},
      {R"(\Qa\E)", "an escape of this kind"},
      {R"(\x)", "a wrong code"},
      {R"(\x4)", "a wrong code"},
      {R"(\xe9)", "a wrong code"},
      {R"(\x{})", "a wrong code"},
      {R"(\x{110000})", "a wrong code"},
      {R"(\ud800)", "a wrong code"},
      {R"(\u12)", "a wrong code"},
      {R"(\u{12})", "a wrong code"},
      {"[a[b]]", "brackets inside of brackets"},
      {"[a-z&&[^b]]", "an intersection of sets"},
      {R"([\d-a])", "a hyphen behind a set"},
      {"[a-c-e]", "a hyphen behind a set"},
      {R"([a-\d])", "a range that ends with a set"},
      {"[b-a]", "a range whose ends"},
      {"[[:alphas:]]", "an unknown set"},
      {"[a", "a bracket without its end"},
      {"[]", "a bracket without its end"},
      {"[[:alpha", "a bracket without its end"},
      {R"([a-\)", "a backslash at its end"},
      {R"(a\)", "a backslash at its end"},
      {"(a", "a group without its end"},
      {"a)", "an end of a group without its begin"},
      {"(?<=a*)b", "an error"},
      {"a\xff", "bytes that are not UTF-8"},
  };
  for (const auto& [pattern, part] : patterns) {
    try {
      const Regex regex{std::string_view(pattern)};
      ADD_FAILURE() << pattern << " was taken";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find(part), std::string::npos) << text;
      EXPECT_NE(text.find("[regex] pattern: given \"" + std::string(pattern) + "\""), std::string::npos) << text;
    }
  }
  EXPECT_THROW(Regex{std::string(65537, 'a')}, Error);
}

TEST(Regex, LiteralsStandForThemselves) {
  EXPECT_EQ(marked(Regex::literal("a.b"), "a.b axb a.ba.b"), "[a.b] axb [a.b][a.b]");
  EXPECT_EQ(marked(Regex::literal("aa"), "aaa"), "[aa]a");
  EXPECT_EQ(marked(Regex::literal("ä"), "ßäö"), "ß[ä]ö");
  EXPECT_EQ(marked(Regex::literal(""), "äb"), "[]ä[]b[]");
}

// Every position of the run is tried before the first alternative gives up.
TEST(Regex, LongRunsOfBlanksHaveNoLimit) {
  constexpr std::size_t kBlanks = 12'000'000;
  const std::string text = std::string(kBlanks, ' ') + "x";
  std::vector<std::size_t> ends;
  Regex(R"(\s*[\r\n]+|\s+(?!\S)|\s+)").for_each(text, [&](std::size_t, std::size_t end, bool) { ends.push_back(end); });
  EXPECT_EQ(ends, (std::vector<std::size_t>{kBlanks - 1, kBlanks, kBlanks + 1}));
}

TEST(Regex, RunawayPatternsAreErrors) {
  const Regex pattern(R"((a+)+$)");
  EXPECT_THROW(marked(pattern, std::string(60, 'a') + "b"), Error);
}

// Pieces are split again while the text they come from is still being searched.
TEST(Regex, SearchesNest) {
  const Regex words(R"(\S+)"), vowels("[aeiouä]");
  std::string result;
  words.for_each("bär und Igel", [&](std::size_t begin, std::size_t end, bool is_match) {
    const std::string part = std::string("bär und Igel").substr(begin, end - begin);
    result += is_match ? marked(vowels, part) : "_";
  });
  EXPECT_EQ(result, "b[ä]r_[u]nd_Ig[e]l");
}

}  // namespace
}  // namespace deltanet::test
