#include "cli/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace deltanet::cli {
namespace {

std::string colored(const char* code, std::string_view text) {
  return use_color() ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

// Characters on the screen: escape sequences take no place, a UTF-8 character takes one.
std::size_t width_of(std::string_view text) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      while (i < text.size() && text[i] != 'm') ++i;
    } else if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) {
      ++width;
    }
  }
  return width;
}

}  // namespace

bool use_color() {
  static const bool use = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  return use;
}

std::string bold(std::string_view text) { return colored("1", text); }
std::string green(std::string_view text) { return colored("32", text); }
std::string red(std::string_view text) { return colored("1;31", text); }
std::string verdict(bool holds) { return holds ? green("PASS") : red("FAIL"); }

void say(std::FILE* stream, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

void print_table(const std::vector<std::vector<std::string>>& rows, const std::vector<std::size_t>& numbers,
                 int indent) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
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
    fmt::print("{}\n", line);
  }
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
