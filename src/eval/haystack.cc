#include "eval/haystack.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "data/unicode/unicode.h"
#include "data/unicode/utf8.h"
#include "eval/text.h"

namespace deltanet::eval {
namespace {

// Short forms that hardly ever end a sentence, without the point at their end: before anything, and before a number.
constexpr std::string_view kShortForms[] = {"Mr",  "Mrs",  "Ms",  "Dr",  "Prof", "Rev", "Hon", "St",  "Messrs",
                                            "Mme", "Mlle", "Gen", "Col", "Capt", "Lt",  "Sgt", "Maj", "Gov",
                                            "Sen", "Rep",  "cf",  "vs",  "e.g",  "i.e", "viz", "ca"};
constexpr std::string_view kBeforeNumbers[] = {"No", "Nos", "Vol", "Fig", "Figs", "Ch", "Sec", "Eq", "pp", "p"};

template <class List>
bool is_in(const List& list, std::string_view word) {
  return std::find(std::begin(list), std::end(list), word) != std::end(list);
}

bool is_one_of(char32_t code, std::u32string_view set) { return set.find(code) != set.npos; }

std::string_view without_opening(std::string_view word) {
  while (!word.empty()) {
    const data::Utf8Char c = data::first_char(word);
    if (!is_one_of(c.code, U"\"'([{*_\u2018\u201C\u00AB")) break;
    word.remove_prefix(c.size);
  }
  return word;
}

std::string_view without_closing(std::string_view word) {
  while (!word.empty()) {
    const data::Utf8Char c = data::last_char(word);
    if (!is_one_of(c.code, U"\"')]}*_\u2019\u201D\u00BB")) break;
    word.remove_suffix(c.size);
  }
  return word;
}

bool begins_small(std::string_view word) {
  static const data::CharSet kSmall = data::unicode_set("ll").value();
  word = without_opening(word);
  return !word.empty() && kSmall.contains(data::first_char(word).code);
}

bool ends_sentence(std::string_view word, std::string_view next) {
  word = without_closing(word);
  if (word.empty() || begins_small(next)) return false;
  const data::Utf8Char last = data::last_char(word);
  if (last.code != U'.') return is_one_of(last.code, U"!?\u2026");
  word.remove_suffix(last.size);
  word = without_opening(word);
  const bool is_letter = characters(word) == 1 && !data::is_numeric(data::first_char(word).code) && word != "I";
  if (is_letter || is_in(kShortForms, word)) return false;
  next = without_opening(next);
  return !is_in(kBeforeNumbers, word) || next.empty() || !data::is_numeric(data::first_char(next).code);
}

// round(linspace(0, 100, 40)) of NumPy.
int64_t depth_at(double place) {
  constexpr int kLast = TextHaystack::kDepths - 1;
  const int index = std::min(kLast, static_cast<int>(place * TextHaystack::kDepths));
  return std::lround(100.0 * index / kLast);
}

}  // namespace

int64_t NoiseHaystack::units() const { return std::numeric_limits<int64_t>::max() / 2; }

Haystack::Context NoiseHaystack::hide(std::string_view needle, int64_t units, double place) const {
  const int64_t before = std::min(units - 1, static_cast<int64_t>(place * static_cast<double>(units)));
  Context context;
  for (int64_t line = 0; line < units; ++line) {
    if (line == before) context.text.append(needle) += '\n';
    context.text.append(kLine) += line + 1 < units ? "\n" : "";
  }
  context.depth = (100 * before + units / 2) / units;
  return context;
}

TextHaystack::TextHaystack(std::string_view text) {
  bool blank = true;
  while (!text.empty()) {
    const data::Utf8Char c = data::first_char(text);
    const bool was_blank = blank;
    blank = is_python_space(c.code);
    if (blank && !was_blank) word_ends_.push_back(text_.size());
    if (!blank) {
      if (was_blank && !text_.empty()) text_ += ' ';
      text_ += text.substr(0, c.size);
    }
    text.remove_prefix(c.size);
  }
  if (!blank) word_ends_.push_back(text_.size());
  for (int64_t word = 0; word < units(); ++word) {
    if (word == 0 || ends_sentence(words(word - 1, word), words(word, word + 1))) sentence_starts_.push_back(word);
  }
}

std::string_view TextHaystack::words(int64_t begin, int64_t end) const {
  if (begin >= end) return {};
  const std::size_t first = begin == 0 ? 0 : word_ends_[begin - 1] + 1;
  return std::string_view(text_).substr(first, word_ends_[end - 1] - first);
}

Haystack::Context TextHaystack::hide(std::string_view needle, int64_t units, double place) const {
  const int64_t depth = depth_at(place);
  const auto end = std::lower_bound(sentence_starts_.begin(), sentence_starts_.end(), units);
  const int64_t sentences = end - sentence_starts_.begin(), before = sentences * depth / 100;
  const int64_t cut = before < sentences ? sentence_starts_[before] : units;
  Context context{.text = std::string(words(0, cut)), .depth = depth};
  context.text += ' ';
  context.text += needle;
  context.text += ' ';
  context.text += words(cut, units);
  return context;
}

}  // namespace deltanet::eval
