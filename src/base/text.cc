#include "base/text.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <iterator>

namespace deltanet {
namespace {

[[gnu::format(printf, 1, 2)]] std::string formatted(const char* format, ...) {
  std::array<char, 64> text;
  va_list values;
  va_start(values, format);
  std::vsnprintf(text.data(), text.size(), format, values);
  va_end(values);
  return text.data();
}

}  // namespace

std::string number_text(double value) {
  const double size = std::fabs(value);
  if (size >= 1e5 || (size > 0 && size < 1e-3)) return formatted("%.1e", value);
  return formatted("%.4g", value);
}

std::string digits_text(double value) {
  if (!std::isfinite(value)) return "-";
  const int before = value == 0 ? 1 : static_cast<int>(std::floor(std::log10(std::fabs(value)))) + 1;
  return formatted("%.*f", std::clamp(3 - before, 0, 6), value);
}

std::string count_text(double value) {
  if (value >= 1e6) return digits_text(value / 1e6) + "M";
  if (value >= 1e3) return digits_text(value / 1e3) + "k";
  return digits_text(value);
}

std::string grouped_text(int64_t value) {
  std::string text = std::to_string(value);
  for (auto i = static_cast<int64_t>(text.size()) - 3; i > 0; i -= 3) text.insert(static_cast<std::size_t>(i), 1, ',');
  return text;
}

std::string bytes_text(double bytes) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < std::size(units)) bytes /= 1000, ++unit;
  return unit == 0 ? formatted("%.0f B", bytes) : formatted("%.3g %s", bytes, units[unit]);
}

std::string duration_text(double seconds) {
  constexpr double kLongest = 100 * 365.25 * 86400;
  const double rounded = std::floor(seconds + 0.5);        // what is left may be below zero by a rounding error
  if (!(rounded >= 0 && rounded <= kLongest)) return "-";  // NaN too
  const auto whole = static_cast<int64_t>(rounded);
  const int64_t days = whole / 86400, hours = whole / 3600, minutes = whole / 60 % 60;
  if (days > 0) return formatted("%" PRId64 "d%02" PRId64 "h", days, hours % 24);
  if (hours > 0) return formatted("%" PRId64 ":%02" PRId64 ":%02" PRId64, hours, minutes, whole % 60);
  return formatted("%" PRId64 ":%02" PRId64, minutes, whole % 60);
}

std::string left_text(double seconds, double done) { return duration_text(seconds * (1 - done) / done) + " left"; }

}  // namespace deltanet
