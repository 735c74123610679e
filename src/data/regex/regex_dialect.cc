// Patterns in Oniguruma's dialect, as Rust's tokenizers uses it. What is known to mean the same to both libraries is
// handed to PCRE2; whatever depends on characters becomes a set of our own tables; the rest is refused.

#include "data/regex/regex_dialect.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "data/regex/pattern_reader.h"
#include "data/unicode/char_properties.h"

namespace deltanet::data {
namespace {

constexpr int kMostRepeats = 65535;

struct Options {
  bool ignores_case = false, dot_takes_newlines = false;
};

struct Group {
  Options outer;         // to return to behind it
  bool is_look = false;  // takes no text
  int to_close = 1;      // brackets of PCRE2
};

class Parser : private PatternReader {
 public:
  explicit Parser(std::string_view pattern) : PatternReader(pattern) { result_.parts.emplace_back(); }

  RegexParts run() {
    groups_.push_back({.outer = {}, .to_close = 0});
    while (at_ < pattern_.size()) item();
    if (groups_.size() > 1) refuse("a group without its end");
    close_group();
    return std::move(result_);
  }

 private:
  // --- What is written.

  void syntax(std::string_view text, bool can_repeat) {
    result_.parts.back().syntax += text;
    can_repeat_ = can_repeat;
  }

  void set(const CharSet& set) {
    const auto found = std::find(result_.sets.begin(), result_.sets.end(), set);
    result_.parts.back().set = static_cast<int>(found - result_.sets.begin());
    if (found == result_.sets.end()) result_.sets.push_back(set);
    result_.parts.emplace_back();
    can_repeat_ = true;
  }

  // --- Outside of brackets.

  void item() {
    switch (pattern_[at_]) {
      case '\\':
        return escape();
      case '[':
        return members();
      case '(':
        return open_group();
      case ')':
        if (groups_.size() == 1) refuse("an end of a group without its begin");
        ++at_;
        return close_group();
      case '|':
        ++at_;
        before_ = 0;
        return syntax("|", false);
      case '^':  // always the begin of a line, but not behind a last newline
        ++at_;
        return line_begin();
      case '$':
        ++at_;
        syntax("(?!", false);
        set(~CharSet::one('\n'));
        return syntax(")", false);
      case '.':
        ++at_;
        before_ = 0;
        return set(options_.dot_takes_newlines ? CharSet::range(0, kLastChar) : ~CharSet::one('\n'));
      case '*':
      case '+':
      case '?':
        return repeat();
      case '{':
        return interval();
      default:
        return literal(take_char());
    }
  }

  void literal(char32_t code) {
    if (options_.ignores_case) {
      // ß, ﬀ, ﬁ, ﬂ and ﬆ match the two letters that they stand for.
      const char32_t small = to_lower(code);
      const bool pair = (before_ == 's' && (small == 's' || small == 't')) ||
                        (before_ == 'f' && (small == 'f' || small == 'i' || small == 'l'));
      if (pair) refuse("two letters that one character matches where case is ignored");
      before_ = small;
    } else {
      before_ = 0;
    }
    set(folded(CharSet::one(code)));
  }

  // With the other case, where it is ignored.
  CharSet folded(const CharSet& characters) const {
    if (!options_.ignores_case) return characters;
    static const CharSet kAscii = CharSet::range(0, 0x7F);
    // Letters with another case, and the marks and letters that one character of theirs may stand for.
    static const CharSet kMayFold =
        category("lowercase") | category("uppercase") | category("lt") | category("lm") | category("m");
    if (!(characters & kMayFold & ~kAscii).empty()) refuse("letters beyond ASCII where case is ignored");
    CharSet result = characters;
    for (char32_t small = 'a'; small <= 'z'; ++small) {
      const char32_t capital = small - 'a' + 'A';
      if (characters.contains(small) || characters.contains(capital)) {
        result = result | CharSet::one(small) | CharSet::one(capital);
      }
    }
    if (result.contains('s')) result = result | CharSet::one(0x17F);
    if (result.contains('k')) result = result | CharSet::one(0x212A);
    return result;
  }

  void line_begin() {
    syntax(R"((?:\A|(?<=)", false);
    set(CharSet::one('\n'));
    syntax(R"()(?!\z)))", false);
  }

  void word_boundary(bool negated) {
    const CharSet word = word_alone();
    const char *same = negated ? "=" : "!", *other = negated ? "!" : "=";
    syntax("(?:(?<=", false);
    set(word);
    syntax(std::string(")(?") + same, false);
    set(word);
    syntax(")|(?<!", false);
    set(word);
    syntax(std::string(")(?") + other, false);
    set(word);
    syntax("))", false);
  }

  void members() {
    bool negated = false;
    const CharSet members = folded(bracket(negated));
    before_ = 0;
    set(negated ? ~members : members);
  }

  void escape() {
    if (at_ + 1 == pattern_.size()) refuse("a backslash at its end");
    const char letter = pattern_[at_ + 1];
    if (letter == 'b' || letter == 'B') {
      at_ += 2;
      return word_boundary(letter == 'B');
    }
    if (letter == 'A' || letter == 'z') {
      at_ += 2;
      return syntax(letter == 'A' ? "\\A" : "\\z", false);
    }
    if (letter == 'Z') {
      at_ += 2;
      syntax("(?=", false);
      set(CharSet::one('\n'));
      return syntax(R"(?\z))", false);
    }
    if (const auto members = set_escape(/*in_brackets=*/false)) {
      before_ = 0;
      return set(folded(*members));
    }
    literal(char_escape());
  }

  void repeat() {
    if (!can_repeat_) refuse("a repetition of nothing");
    std::string text(1, pattern_[at_++]);
    if (starts_with("?") || starts_with("+")) text += pattern_[at_++];
    syntax(text, false);
  }

  // {n}, {n,}, {,m}, {n,m}; anything else in braces stands for itself.
  void interval() {
    const std::size_t end = pattern_.find_first_not_of("0123456789,", at_ + 1);
    if (end == std::string_view::npos || pattern_[end] != '}') return literal(take_char());
    const std::string_view inside = pattern_.substr(at_ + 1, end - at_ - 1);
    const std::size_t comma = inside.find(',');
    const std::string_view low = inside.substr(0, comma);
    const std::string_view high = comma == std::string_view::npos ? low : inside.substr(comma + 1);
    if ((low.empty() && high.empty()) || high.find(',') != std::string_view::npos) return literal(take_char());

    if (!can_repeat_) refuse("a repetition of nothing");
    const int lowest = low.empty() ? 0 : repeats(low), highest = high.empty() ? kMostRepeats : repeats(high);
    if (lowest > highest) refuse("a repetition whose bounds are in the wrong order");
    std::string text = "{" + std::to_string(lowest) + (high.empty() ? "," : "," + std::to_string(highest)) + "}";
    at_ = end + 1;
    // To Oniguruma the first of these repeats again, and the second makes optional.
    if (starts_with("+")) refuse("a plus behind braces");
    if (starts_with("?")) {
      if (lowest == highest) refuse("a question mark behind a fixed repetition");
      text += pattern_[at_++];
    }
    syntax(text, false);
  }

  int repeats(std::string_view digits) const {
    int value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || value > kMostRepeats) refuse("more than 65535 repetitions");
    return value;
  }

  void open_group() {
    for (const std::string_view begin : {"(?:", "(?>", "(?=", "(?!", "(?<=", "(?<!"}) {
      if (!starts_with(begin)) continue;
      at_ += begin.size();
      groups_.push_back({.outer = options_, .is_look = begin.find_first_of("=!") != std::string_view::npos});
      return syntax(begin, false);
    }
    if (starts_with("(?")) return options();
    if (starts_with("(*")) refuse("a group with a star");
    ++at_;
    groups_.push_back({.outer = options_});
    syntax("(?:", false);  // nothing can refer to what it takes
  }

  // (?i-m:...) for its group, (?i) for the rest of the group around it, whose alternatives it joins.
  void options() {
    const Options outer = options_;
    bool on = true;
    at_ += 2;
    for (;; ++at_) {
      if (starts_with("-")) {
        on = false;
      } else if (starts_with("i")) {
        options_.ignores_case = on;
      } else if (starts_with("m")) {
        options_.dot_takes_newlines = on;
      } else {
        break;
      }
    }
    if (starts_with(":")) {
      groups_.push_back({.outer = outer});
    } else if (starts_with(")")) {
      ++groups_.back().to_close;
    } else {
      refuse("a group of this kind");
    }
    ++at_;
    syntax("(?:", false);
  }

  void close_group() {
    const Group group = groups_.back();
    groups_.pop_back();
    syntax(std::string(static_cast<std::size_t>(group.to_close), ')'), !group.is_look);
    options_ = group.outer;
  }

  RegexParts result_;
  Options options_;
  std::vector<Group> groups_;
  bool can_repeat_ = false;
  char32_t before_ = 0;  // the small form of the letter in front, where case is ignored; 0: none
};

}  // namespace

RegexParts parse_oniguruma(std::string_view pattern) { return Parser(pattern).run(); }

}  // namespace deltanet::data
