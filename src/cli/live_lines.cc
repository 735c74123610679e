#include "cli/live_lines.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "cli/terminal.h"

namespace deltanet::cli {
namespace {

std::size_t terminal_width(std::FILE* to) {
  winsize size{};
  return ioctl(fileno(to), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

LiveLines::LiveLines(std::size_t count, std::FILE* to)
    : to_(to), live_(isatty(fileno(to)) != 0), lines_(count), logged_(count, std::chrono::steady_clock::now()) {}

LiveLines::~LiveLines() {
  const std::lock_guard lock(mutex_);
  erase();
  std::fflush(to_);
}

void LiveLines::set(std::size_t line, std::string text) {
  const std::lock_guard lock(mutex_);
  lines_[line] = std::move(text);
  const auto now = std::chrono::steady_clock::now();
  if (!live_) {
    if (lines_[line].empty() || now - logged_[line] < std::chrono::minutes(1)) return;
    logged_[line] = now;
    cli::say(to_, lines_[line] + "\n");
    return;
  }
  show();
}

void LiveLines::set_first(const std::vector<std::string>& lines) {
  const std::lock_guard lock(mutex_);
  std::copy(lines.begin(), lines.end(), lines_.begin());
  if (live_) show();
}

void LiveLines::show() {
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  erase();
  draw();
  std::fflush(to_);
}

void LiveLines::say(std::string_view text) {
  const std::lock_guard lock(mutex_);
  erase();
  cli::say(to_, std::string(text) + "\n");  // goes on where it fails: the threads are at work
  if (live_) draw();
  std::fflush(to_);
}

void LiveLines::erase() {
  if (drawn_ > 0) fmt::print(to_, "\x1b[{}A\r\x1b[J", drawn_);
  drawn_ = 0;
}

// A line that is wider than the terminal would take two rows, and erase() would miss one of them.
void LiveLines::draw() {
  const std::size_t width = terminal_width(to_) - 1;
  for (const std::string& line : lines_) {
    if (line.empty()) continue;
    fmt::print(to_, "{}\n", clipped(line, width));
    ++drawn_;
  }
}

}  // namespace deltanet::cli
