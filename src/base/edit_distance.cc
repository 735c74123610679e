#include "base/edit_distance.h"

#include <algorithm>
#include <numeric>

namespace deltanet {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

std::string suggestion(std::string_view name, const std::vector<std::string_view>& known) {
  const auto nearest = std::min_element(known.begin(), known.end(), [&](std::string_view a, std::string_view b) {
    return edit_distance(a, name) < edit_distance(b, name);
  });
  if (nearest != known.end() && edit_distance(*nearest, name) <= std::max<std::size_t>(2, name.size() / 2)) {
    return "did you mean \"" + std::string(*nearest) + "\"?";
  }
  std::string text = "expected one of ";
  for (std::size_t i = 0; i < known.size(); ++i) text.append(i == 0 ? "" : ", ").append(known[i]);
  return text;
}

}  // namespace deltanet
