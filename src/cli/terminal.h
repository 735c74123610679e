#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

// Text for people: aligned tables, and colors where the output is a terminal. Shared by the subcommands.

namespace deltanet::cli {

// True when standard output is a terminal and NO_COLOR is not set.
bool use_color();

std::string bold(std::string_view text);
std::string green(std::string_view text);
std::string red(std::string_view text);

// The colors of Okabe and Ito, which people with any color vision can tell apart: those of the pictures.
enum class Color { kBlue, kVermilion, kOrange, kPurple, kGreen, kGray };
std::string colored(Color color, std::string_view text);

std::string verdict(bool holds);  // PASS or FAIL

// Writes text to a stream, and goes on where nobody can see it any more, such as after a terminal was closed: saving is
// more important than saying so.
void say(std::FILE* stream, std::string_view text);

// As much of a text as `width` characters of the screen take; escape sequences take none, and all of them stay.
std::string clipped(std::string_view text, std::size_t width);

// Rows in columns two spaces apart; `numbers` lists the columns that are aligned to the right. Cells may hold colors.
// The last column is never padded.
std::vector<std::string> table_lines(const std::vector<std::vector<std::string>>& rows,
                                     const std::vector<std::size_t>& numbers = {}, int indent = 0);
void print_table(const std::vector<std::vector<std::string>>& rows, const std::vector<std::size_t>& numbers = {},
                 int indent = 0);

// One changing line on standard error, where that is a terminal.
class Progress {
 public:
  ~Progress() { clear(); }
  void show(std::string_view text);
  void clear();

 private:
  bool shown_ = false;
};

}  // namespace deltanet::cli
