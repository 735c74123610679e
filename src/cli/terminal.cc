#include "cli/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace deltanet::cli {
namespace {

std::string escaped(const char* code, std::string_view text) {
  return use_color() ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

// Calls visit(part, width) for each piece of a text: an escape sequence takes no place, a UTF-8 character one.
template <class Visit>
void for_pieces(std::string_view text, const Visit& visit) {
  for (std::size_t i = 0, end = 0; i < text.size(); i = end) {
    end = i + 1;
    if (text[i] == '\x1b') {
      while (end < text.size() && text[end - 1] != 'm') ++end;
      visit(text.substr(i, end - i), 0);
    } else {
      while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
      visit(text.substr(i, end - i), 1);
    }
  }
}

std::size_t width_of(std::string_view text) {
  std::size_t width = 0;
  for_pieces(text, [&](std::string_view, std::size_t one) { width += one; });
  return width;
}

}  // namespace

bool use_color() {
  static const bool use = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  return use;
}

std::string bold(std::string_view text) { return escaped("1", text); }
std::string green(std::string_view text) { return escaped("32", text); }
std::string red(std::string_view text) { return escaped("1;31", text); }

std::string colored(Color color, std::string_view text) {
  // The nearest of the 256 colors that can be read on light and dark grounds.
  switch (color) {
    case Color::kBlue:
      return escaped("38;5;32", text);
    case Color::kVermilion:
      return escaped("38;5;166", text);
    case Color::kOrange:
      return escaped("38;5;178", text);
    case Color::kPurple:
      return escaped("38;5;133", text);
    case Color::kGreen:
      return escaped("38;5;36", text);
    case Color::kGray:
      return escaped("38;5;244", text);
  }
  return std::string(text);
}

std::string verdict(bool holds) { return holds ? green("PASS") : red("FAIL"); }

std::string clipped(std::string_view text, std::size_t width) {
  std::string kept;
  std::size_t used = 0;
  for_pieces(text, [&](std::string_view piece, std::size_t one) {
    used += one;
    if (one == 0 || used <= width) kept += piece;
  });
  return kept;
}

void say(std::FILE* stream, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

std::vector<std::string> table_lines(const std::vector<std::vector<std::string>>& rows,
                                     const std::vector<std::size_t>& numbers, int indent) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::vector<std::string> lines;
  for (const auto& row : rows) {
    std::string line(static_cast<std::size_t>(indent), ' ');
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - width_of(row[i]), ' ');
      const bool right = std::find(numbers.begin(), numbers.end(), i) != numbers.end();
      if (right) line += padding;
      line += row[i];
      if (i + 1 == row.size()) break;
      if (!right) line += padding;
      line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(std::move(line));
  }
  return lines;
}

void print_table(const std::vector<std::vector<std::string>>& rows, const std::vector<std::size_t>& numbers,
                 int indent) {
  for (const std::string& line : table_lines(rows, numbers, indent)) fmt::print("{}\n", line);
}

void Progress::show(std::string_view text) {
  static const bool terminal = isatty(STDERR_FILENO) != 0;
  if (!terminal) return;
  say(stderr, fmt::format("\r\x1b[K{}", text));
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  say(stderr, "\r\x1b[K");
  shown_ = false;
}

}  // namespace deltanet::cli
