// From Oniguruma's dialect (as Rust's tokenizers uses it) to PCRE2's. Most of the syntax is common to both; this file
// is about the rest.

#include <algorithm>
#include <cctype>
#include <utility>

#include "data/regex.h"
#include "deltanet/error.h"

namespace deltanet::data {
namespace {

constexpr std::string_view kSpace = R"(\p{White_Space})", kNotSpace = R"(\P{White_Space})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// Outside of brackets \w also takes the superscripts and fractions of Latin-1, by an oddity of Oniguruma.
constexpr std::string_view kWordAlone = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";
constexpr std::string_view kHex = "0-9a-fA-F";

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        class_member();
      } else if (c == '[') {
        open_class();
      } else if (starts_with("(?")) {
        group();
      } else if (c == '{') {
        interval();
      } else {
        copy(1);
      }
    }
    return std::move(result_);
  }

 private:
  bool starts_with(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }

  void copy(std::size_t count) {
    result_ += pattern_.substr(at_, count);
    at_ += std::min(count, pattern_.size() - at_);
  }

  void write(std::string_view text, std::size_t consumed) {
    result_ += text;
    at_ += consumed;
  }

  [[noreturn]] void refuse(std::string_view what) const {
    throw Error("[regex] pattern: given \"" + std::string(pattern_) + "\", which has " + std::string(what) +
                " at byte " + std::to_string(at_) + "; expected a pattern without it");
  }

  // A set of characters inside or outside of brackets.
  void set(std::string_view members, bool negated) {
    if (in_class_) {
      if (negated) refuse("a negated set inside of brackets");
      write(members, 2);
    } else {
      write(std::string(negated ? "[^" : "[") + std::string(members) + "]", 2);
    }
  }

  void word_boundary(bool negated) {
    const std::string word = "[" + std::string(kWordAlone) + "]";
    const std::string same = negated ? "=" : "!", other = negated ? "!" : "=";
    write("(?:(?<=" + word + ")(?" + same + word + ")|(?<!" + word + ")(?" + other + word + "))", 2);
  }

  void escape() {
    if (at_ + 1 == pattern_.size()) refuse("a backslash at its end");
    switch (pattern_[at_ + 1]) {
      case 's':
        return write(kSpace, 2);
      case 'S':
        return write(kNotSpace, 2);
      case 'd':
        return write(R"(\p{Nd})", 2);
      case 'D':
        return write(R"(\P{Nd})", 2);
      case 'w':
        return set(in_class_ ? kWord : kWordAlone, false);
      case 'W':
        return set(kWordAlone, true);
      case 'h':
        return set(kHex, false);  // a hexadecimal digit; to PCRE2 a horizontal space
      case 'H':
        return set(kHex, true);
      case 'b':
        return in_class_ ? copy(2) : word_boundary(false);
      case 'B':
        return in_class_ ? copy(2) : word_boundary(true);
      case 'u':
        return code_point();
      case 'C':
      case 'E':
      case 'G':
      case 'K':
      case 'N':
      case 'O':
      case 'Q':
      case 'v':
      case 'V':
        refuse("an escape that the two dialects read differently");
      default:
        return copy(2);
    }
  }

  void code_point() {
    const std::string_view digits = pattern_.substr(at_ + 2, 4);
    for (const char digit : digits) {
      if (!std::isxdigit(static_cast<unsigned char>(digit))) refuse("a wrong \\u");
    }
    if (digits.size() < 4) refuse("a wrong \\u");
    write("\\x{" + std::string(digits) + "}", 6);
  }

  void open_class() {
    in_class_ = true;
    copy(starts_with("[^") ? 2 : 1);
    if (starts_with("]")) copy(1);  // a bracket in first place stands for itself
  }

  void class_member() {
    if (starts_with("[:")) return posix_class();
    if (starts_with("[")) refuse("brackets inside of brackets");
    if (starts_with("&&")) refuse("an intersection of sets");
    if (starts_with("]")) in_class_ = false;
    copy(1);
  }

  // PCRE2 has these names too, with other members.
  void posix_class() {
    constexpr std::pair<std::string_view, std::string_view> kClasses[] = {
        {"[:alnum:]", R"(\p{Alphabetic}\p{Nd})"},
        {"[:alpha:]", R"(\p{Alphabetic})"},
        {"[:digit:]", R"(\p{Nd})"},
        {"[:lower:]", R"(\p{Lowercase})"},
        {"[:punct:]", R"(\p{P}\p{S})"},
        {"[:space:]", kSpace},
        {"[:upper:]", R"(\p{Uppercase})"},
        {"[:word:]", kWord},
        {"[:xdigit:]", kHex},
    };
    for (const auto& [name, members] : kClasses) {
      if (starts_with(name)) return write(members, name.size());
    }
    refuse("an unknown set");
  }

  // (?m) lets the dot match newlines; PCRE2 calls that (?s).
  void group() {
    copy(2);
    const std::size_t end = pattern_.find_first_not_of("imx-", at_);
    if (end == std::string_view::npos || (pattern_[end] != ':' && pattern_[end] != ')')) return;
    for (; at_ < end; ++at_) result_ += pattern_[at_] == 'm' ? 's' : pattern_[at_];
  }

  // {n,m}: the lower bound may be missing; a plus behind it repeats and does not make it possessive.
  void interval() {
    const std::size_t end = pattern_.find_first_not_of("0123456789,", at_ + 1);
    const bool is_interval = end != std::string_view::npos && pattern_[end] == '}' && end > at_ + 1;
    if (!is_interval) return copy(1);
    if (end + 1 < pattern_.size() && pattern_[end + 1] == '+') refuse("a plus behind braces");
    if (pattern_[at_ + 1] == ',') write("{0", 1);
    copy(end + 1 - at_);
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  std::string result_;
};

}  // namespace

std::string to_pcre2(std::string_view pattern) { return Translator(pattern).run(); }

}  // namespace deltanet::data
