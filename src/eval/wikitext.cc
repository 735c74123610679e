#include "eval/wikitext.h"

#include <algorithm>
#include <array>
#include <utility>

#include "eval/text.h"

namespace deltanet::eval {
namespace {

bool begins_page(std::string_view line) {
  const std::string heading = strip(replace_all(replace_all(line, "= = =", "==="), "= =", "=="));
  return heading.starts_with("= ") && heading.ends_with(" =");
}

// No blanks just inside of pairs such as ( and ), from left to right.
std::string close_up(std::string_view text, char open, char close) {
  std::string closed;
  for (std::size_t begin = 0;;) {
    const std::size_t first = text.find(open, begin);
    const std::size_t last = first == text.npos ? text.npos : text.find(close, first + 1);
    if (last == text.npos) return closed += text.substr(begin);
    closed += text.substr(begin, first + 1 - begin);
    closed += strip(text.substr(first + 1, last - first - 1));
    closed += close;
    begin = last + 1;
  }
}

}  // namespace

std::vector<std::string> wikitext_pages(std::string_view raw) {
  std::vector<std::string> pages;
  std::string page;
  const auto finish = [&] {
    if (!strip(page).empty()) pages.push_back(page);
    page.clear();
  };
  bool first = true;  // line of the page
  while (true) {
    const std::size_t end = std::min(raw.find('\n'), raw.size());
    std::string_view line = raw.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (begins_page(line)) {
      finish();
      first = true;
    }
    if (!std::exchange(first, false)) page += '\n';
    page += line;
    if (end == raw.size()) break;
    raw.remove_prefix(end + 1);
  }
  finish();
  return pages;
}

std::string detokenized_wikitext(std::string_view page) {
  using Rule = std::pair<std::string_view, std::string_view>;
  constexpr std::array kPunctuation = {Rule{"s '", "s'"}, Rule{" @-@ ", "-"}, Rule{" @,@ ", ","}, Rule{" @.@ ", "."},
                                       Rule{" : ", ": "}, Rule{" ; ", "; "},  Rule{" . ", ". "},  Rule{" ! ", "! "},
                                       Rule{" ? ", "? "}, Rule{" , ", ", "}};
  constexpr std::array kRest = {
      Rule{"= = = =", "===="}, Rule{"= = =", "==="}, Rule{"= =", "=="},  Rule{" \xC2\xB0 ", "\xC2\xB0"},
      Rule{" \n", "\n"},       Rule{"\n ", "\n"},    Rule{" N ", " 1 "}, Rule{" 's", "'s"}};
  std::string text(page);
  for (const auto& [from, to] : kPunctuation) text = replace_all(text, from, to);
  for (const auto& [open, close] : {std::pair{'(', ')'}, {'[', ']'}, {'{', '}'}, {'"', '"'}, {'\'', '\''}}) {
    text = close_up(text, open, close);
  }
  for (const auto& [from, to] : kRest) text = replace_all(text, from, to);
  return text;
}

}  // namespace deltanet::eval
