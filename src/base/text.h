#pragma once

#include <cstdint>
#include <string>

// Numbers as people read them.

namespace deltanet {

// A number of any size: 0, 17, 0.3333, 2.1e-15.
std::string number_text(double value);

// Three significant digits without an exponent: 0.0534, 1.27, 48.1, 1234. "-" where it is not finite.
std::string digits_text(double value);

// 87123 -> "87.1k"
std::string count_text(double value);

// 342184896 -> "342,184,896"
std::string grouped_text(int64_t value);

// "1.37 GB", "512 kB"
std::string bytes_text(double bytes);

// A time: 75 -> "1:15", 4000 -> "1:06:40", 190000 -> "2d04h". "-" where there is none to tell: below zero, not finite,
// or more than a hundred years, which are estimates from a speed of nearly nothing.
std::string duration_text(double seconds);

// How long the rest takes of something that took so many seconds for the share `done` of it: "1:15 left".
std::string left_text(double seconds, double done);

}  // namespace deltanet
