#include "eval/result.h"

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

Estimate estimate(const Metric& metric, std::span<const ExampleResult> examples) {
  // A ratio of two sums, whose error is that of the mean of what the examples add beyond the ratio.
  double scores = 0, weights = 0;
  const auto weight = [&](const ExampleResult& example) {
    return metric.weight.empty() ? 1.0 : example.scores.at(std::string(metric.weight));
  };
  const std::string score(metric.score);
  for (const ExampleResult& example : examples) {
    scores += example.scores.at(score);
    weights += weight(example);
  }
  const double ratio = scores / weights, n = static_cast<double>(examples.size());
  double squares = 0;
  for (const ExampleResult& example : examples) {
    const double beyond = example.scores.at(score) - ratio * weight(example);
    squares += beyond * beyond;
  }
  const double error = n > 1 ? std::sqrt(squares / (n - 1) * n) / weights : std::numeric_limits<double>::quiet_NaN();
  Estimate result{.value = ratio, .stderr_ = error, .examples = static_cast<int64_t>(examples.size())};
  switch (metric.aggregate) {
    case Aggregate::kMean:
      break;
    case Aggregate::kPerplexity:
      result.value = std::exp(-ratio);
      result.stderr_ = error * result.value;
      break;
    case Aggregate::kBits:
      result.value = -ratio * std::numbers::log2e;
      result.stderr_ = error * std::numbers::log2e;
      break;
  }
  return result;
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
