#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eval/task.h"

// What comes out: the scores of each example, and of them the metrics of a task.

namespace deltanet::eval {

struct ExampleResult {
  // By name: acc, acc_norm, contains (0 or 1, or a share), score, log_likelihood, words, bytes, tokens.
  std::map<std::string, double> scores;
  std::map<std::string, double> tags;  // of the example
  // What was said: "log_likelihoods" and "greedy" of the options, the "prediction", or the "curve" of a document: by
  // places in its windows (curve_begin), the sums "loss" and the numbers of "tokens".
  nlohmann::ordered_json said = nlohmann::ordered_json::object();
  bool cut = false;  // the beginning of a context or a prompt was left out
};

// How the scores of examples become a number.
enum class Aggregate {
  kMean,        // of the score
  kPerplexity,  // exp(-sum of the score / sum of the weight)
  kBits,        // -sum / sum of the weight, in bits
};

struct Metric {
  std::string_view name, score;
  std::string_view weight;  // a score too; empty: 1 for each example
  Aggregate aggregate = Aggregate::kMean;
  bool is_share() const { return aggregate == Aggregate::kMean; }  // higher is better, printed in percent
};

std::span<const Metric> metrics_of(Kind kind);
const Metric& find_metric(Kind kind, std::string_view name);

struct Estimate {
  double value = 0, stderr_ = 0;  // NaN where there are too few examples to tell
  int64_t examples = 0;
};

struct Cell {
  std::map<std::string, double> tags;
  Estimate estimate;  // of the task's metric
};

struct TaskResult {
  std::vector<ExampleResult> examples;
  nlohmann::ordered_json about;  // LoadedTask
  std::vector<std::string> notes;
  double seconds = 0;
  int64_t tokens = 0;   // that were read
  int64_t resumed = 0;  // examples that an earlier, stopped evaluation had done
};

// Loss by place: how many tokens were before the one that is predicted, in intervals that widen by a quarter of an
// octave. Interval i is [curve_begin(i), curve_begin(i + 1)); some of the first are empty.
int64_t curve_begin(int64_t interval);
int64_t curve_interval(int64_t place);
struct CurvePoint {
  int64_t begin = 0, end = 0;  // tokens before
  double loss = 0;             // mean, natural logarithm
  int64_t tokens = 0;
};
std::vector<CurvePoint> curve(std::span<const ExampleResult> examples);

Estimate estimate(const Metric& metric, std::span<const ExampleResult> examples);
// What each example adds to the value beyond its share of it, to first order: the variance of the value is n / (n - 1)
// times the sum of their squares.
std::vector<double> contributions(const Metric& metric, std::span<const ExampleResult> examples);
// In the order of the tags' values.
std::vector<Cell> break_down(const Metric& metric, const Breakdown& by, std::span<const ExampleResult> examples);

}  // namespace deltanet::eval
