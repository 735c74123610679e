#include "eval/result.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "deltanet/error.h"

namespace deltanet::eval {
namespace {

constexpr Metric kAcc = {"acc", "acc", ""};
constexpr std::array kChoice = {kAcc, Metric{"acc_norm", "acc_norm", ""}};
constexpr std::array kCloze = {Metric{"perplexity", "log_likelihood", "", Aggregate::kPerplexity}, kAcc};
constexpr std::array kDocument = {Metric{"word_perplexity", "log_likelihood", "words", Aggregate::kPerplexity},
                                  Metric{"byte_perplexity", "log_likelihood", "bytes", Aggregate::kPerplexity},
                                  Metric{"bits_per_byte", "log_likelihood", "bytes", Aggregate::kBits},
                                  Metric{"token_perplexity", "log_likelihood", "tokens", Aggregate::kPerplexity}};
constexpr std::array kQuestion = {Metric{"contains", "contains", ""}};
constexpr std::array kLabelled = {kAcc, Metric{"score", "score", ""}};

}  // namespace

std::span<const Metric> metrics_of(Kind kind) {
  switch (kind) {
    case Kind::kChoice:
      return kChoice;
    case Kind::kCloze:
      return kCloze;
    case Kind::kDocument:
      return kDocument;
    case Kind::kQuestion:
      return kQuestion;
    case Kind::kLabelled:
      return kLabelled;
  }
  throw Error("[eval] kind: no such kind of task");
}

const Metric& find_metric(Kind kind, std::string_view name) {
  for (const Metric& metric : metrics_of(kind)) {
    if (metric.name == name) return metric;
  }
  throw Error("[eval] metric: given " + std::string(name) + "; expected one that this kind of task has");
}

int64_t curve_begin(int64_t interval) {
  return static_cast<int64_t>(std::ceil(std::exp2(static_cast<double>(interval) / 4.0) - 1e-9));
}

int64_t curve_interval(int64_t place) {
  auto interval = static_cast<int64_t>(4 * std::log2(static_cast<double>(place)));
  while (curve_begin(interval + 1) <= place) ++interval;
  while (curve_begin(interval) > place) --interval;
  return interval;
}

std::vector<CurvePoint> curve(std::span<const ExampleResult> examples) {
  std::vector<CurvePoint> points;
  for (const ExampleResult& example : examples) {
    if (!example.said.contains("curve")) continue;
    const auto& loss = example.said["curve"]["loss"];
    const auto& tokens = example.said["curve"]["tokens"];
    points.resize(std::max(points.size(), loss.size()));
    for (std::size_t i = 0; i < loss.size(); ++i) {
      points[i].loss += loss[i].get<double>();
      points[i].tokens += tokens[i].get<int64_t>();
    }
  }
  for (std::size_t i = 0; i < points.size(); ++i) {
    points[i].begin = curve_begin(static_cast<int64_t>(i));
    points[i].end = curve_begin(static_cast<int64_t>(i) + 1);
    points[i].loss /= static_cast<double>(std::max<int64_t>(1, points[i].tokens));
  }
  std::erase_if(points, [](const CurvePoint& point) { return point.tokens == 0; });
  return points;
}

namespace {

// A ratio of two sums.
struct Ratio {
  double scores = 0, weights = 0;
  double value() const { return scores / weights; }
};

double weight_of(const Metric& metric, const ExampleResult& example) {
  return metric.weight.empty() ? 1.0 : example.scores.at(std::string(metric.weight));
}

Ratio ratio_of(const Metric& metric, std::span<const ExampleResult> examples) {
  Ratio ratio;
  const std::string score(metric.score);
  for (const ExampleResult& example : examples) {
    ratio.scores += example.scores.at(score);
    ratio.weights += weight_of(metric, example);
  }
  return ratio;
}

// The value and its derivative at a ratio.
std::pair<double, double> value_at(const Metric& metric, double ratio) {
  switch (metric.aggregate) {
    case Aggregate::kMean:
      return {ratio, 1};
    case Aggregate::kPerplexity:
      return {std::exp(-ratio), -std::exp(-ratio)};
    case Aggregate::kBits:
      return {-ratio * std::numbers::log2e, -std::numbers::log2e};
  }
  throw Error("[eval] aggregate: no such kind");
}

}  // namespace

std::vector<double> contributions(const Metric& metric, std::span<const ExampleResult> examples) {
  const Ratio ratio = ratio_of(metric, examples);
  const double slope = value_at(metric, ratio.value()).second;
  const std::string score(metric.score);
  std::vector<double> added;
  for (const ExampleResult& example : examples) {
    added.push_back(slope * (example.scores.at(score) - ratio.value() * weight_of(metric, example)) / ratio.weights);
  }
  return added;
}

Estimate estimate(const Metric& metric, std::span<const ExampleResult> examples) {
  const auto n = static_cast<double>(examples.size());
  double squares = 0;
  for (const double added : contributions(metric, examples)) squares += added * added;
  return {.value = value_at(metric, ratio_of(metric, examples).value()).first,
          .stderr_ = n > 1 ? std::sqrt(squares / (n - 1) * n) : std::numeric_limits<double>::quiet_NaN(),
          .examples = std::ssize(examples)};
}

std::vector<Cell> break_down(const Metric& metric, const Breakdown& by, std::span<const ExampleResult> examples) {
  std::map<std::vector<double>, std::vector<ExampleResult>> groups;
  for (const ExampleResult& example : examples) {
    std::vector<double> values;
    for (const std::string_view tag : by) values.push_back(example.tags.at(std::string(tag)));
    groups[values].push_back(example);
  }
  std::vector<Cell> cells;
  for (const auto& [values, group] : groups) {
    Cell cell{.tags = {}, .estimate = estimate(metric, group)};
    for (std::size_t i = 0; i < by.size(); ++i) cell.tags.emplace(by[i], values[i]);
    cells.push_back(std::move(cell));
  }
  return cells;
}

}  // namespace deltanet::eval
