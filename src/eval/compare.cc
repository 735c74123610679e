#include "eval/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>

#include "deltanet/error.h"

namespace deltanet::eval {
namespace {

bool is_binary(double score) { return score == 0.0 || score == 1.0; }

}  // namespace

double mcnemar_p(int64_t only_first, int64_t only_second) {
  const int64_t n = only_first + only_second, fewer = std::min(only_first, only_second);
  if (n == 0) return 1;
  double p = 0;
  for (int64_t k = 0; k <= fewer; ++k) {
    p += std::exp(std::lgamma(static_cast<double>(n) + 1) - std::lgamma(static_cast<double>(k) + 1) -
                  std::lgamma(static_cast<double>(n - k) + 1) - static_cast<double>(n) * std::numbers::ln2);
  }
  return std::min(1.0, 2 * p);
}

Difference paired_difference(const Metric& metric, std::span<const ExampleResult> first,
                             std::span<const ExampleResult> second) {
  if (first.size() != second.size()) {
    throw Error("[eval] difference: given " + std::to_string(first.size()) + " and " + std::to_string(second.size()) +
                " examples; expected the same ones");
  }
  const std::vector<double> added_first = contributions(metric, first), added_second = contributions(metric, second);
  const auto n = static_cast<double>(first.size());
  Difference difference{.value = estimate(metric, second).value - estimate(metric, first).value,
                        .stderr_ = std::numeric_limits<double>::quiet_NaN(),
                        .p = 1,
                        .examples = std::ssize(first)};
  double squares = 0;
  int64_t only_first = 0, only_second = 0;
  bool binary = metric.is_share();
  const std::string score(metric.score);
  for (std::size_t i = 0; i < first.size(); ++i) {
    squares += (added_second[i] - added_first[i]) * (added_second[i] - added_first[i]);
    const double a = first[i].scores.at(score), b = second[i].scores.at(score);
    binary = binary && is_binary(a) && is_binary(b);
    only_first += a > b ? 1 : 0;
    only_second += b > a ? 1 : 0;
  }
  if (n > 1) difference.stderr_ = std::sqrt(squares / (n - 1) * n);
  if (binary) {
    difference.p = mcnemar_p(only_first, only_second);
  } else if (difference.stderr_ > 0) {
    difference.p = std::erfc(std::fabs(difference.value) / difference.stderr_ / std::numbers::sqrt2);
  }
  return difference;
}

namespace {

// The gain without the normalizer that a preconditioner brings along.
Gain plain_gain(const Spec& spec) {
  const bool normalizes = spec.gain == Gain::kInv || spec.gain == Gain::kOnePlus || spec.gain == Gain::kAlphaBeta;
  return normalizes ? Gain::kBeta : spec.gain;
}

}  // namespace

std::vector<std::pair<std::size_t, std::size_t>> pairs_of(std::span<const Spec> specs) {
  if (specs.size() == 2) return {{0, 1}};
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (std::size_t i = 0; i + 1 < specs.size(); ++i) {
    const Spec &a = specs[i], &b = specs[i + 1];
    const bool same = a.solve == b.solve && a.decay == b.decay && plain_gain(a) == plain_gain(b) && a.erase == b.erase;
    const auto plain = [](const Spec& spec) { return spec.key == Precond::kNone && spec.query == Precond::kNone; };
    if (!same || plain(a) == plain(b)) continue;
    if (pairs.empty() || pairs.back().second != i) pairs.emplace_back(i, i + 1);
  }
  return pairs;
}

}  // namespace deltanet::eval
