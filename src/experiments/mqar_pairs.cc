#include "experiments/mqar_pairs.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace deltanet {
namespace {

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

template <class T>
void add_new(std::vector<T>& values, const T& value) {
  if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
}

template <class T>
std::size_t place_of(const std::vector<T>& values, const T& value) {
  return static_cast<std::size_t>(std::find(values.begin(), values.end(), value) - values.begin());
}

MeanInterval summary_of(const std::vector<double>& values) {
  return values.empty() ? MeanInterval{kMissing, kMissing} : mean_interval(values);
}

// The steps after which run_mqar() validates.
std::vector<int64_t> validation_steps(const MqarRun& run) {
  const int64_t steps = mqar_steps(run);
  std::vector<int64_t> result;
  for (int64_t i = 1; i <= run.validations; ++i) {
    const int64_t step = (i * steps + run.validations - 1) / run.validations;
    if (result.empty() || result.back() != step) result.push_back(step);
  }
  return result;
}

}  // namespace

MqarPairs::MqarPairs(const std::vector<MqarRun>& runs) {
  for (const MqarRun& run : runs) {
    add_new(models_, run.row);
    add_new(seeds_, run.seed);
  }
  steps_ = validation_steps(runs.front());
  for (const MqarPart& part : runs.front().tests) tests_.push_back(part.task);
  const auto empty = [&](std::size_t points) {
    return Values(models_.size(), {seeds_.size(), std::vector<double>(points, kMissing)});
  };
  curves_ = empty(steps_.size());
  scores_ = empty(tests_.size());
}

void MqarPairs::set(Values& values, const MqarRun& run, std::size_t point, double value) {
  std::vector<double>& points = values[place_of(models_, run.row)][place_of(seeds_, run.seed)];
  if (point < points.size()) points[point] = value;
}

void MqarPairs::add(const MqarRun& run, const MqarProgress& validation) {
  const std::lock_guard lock(mutex_);
  set(curves_, run, place_of(steps_, validation.step), validation.accuracy);
}

void MqarPairs::add(const MqarRun& run, const std::vector<MqarScore>& scores) {
  const std::lock_guard lock(mutex_);
  for (const MqarScore& score : scores) set(scores_, run, place_of(tests_, score.task), score.accuracy);
}

std::vector<MeanInterval> MqarPairs::means(const Values& values, std::size_t model) const {
  const std::lock_guard lock(mutex_);
  std::vector<MeanInterval> result;
  for (std::size_t point = 0; point < values[model].front().size(); ++point) {
    std::vector<double> there;
    for (const std::vector<double>& seed : values[model]) {
      if (!std::isnan(seed[point])) there.push_back(seed[point]);
    }
    result.push_back(summary_of(there));
  }
  return result;
}

std::vector<MeanInterval> MqarPairs::differences(const Values& values, std::size_t model, std::size_t minus) const {
  const std::lock_guard lock(mutex_);
  std::vector<MeanInterval> result;
  for (std::size_t point = 0; point < values[model].front().size(); ++point) {
    std::vector<double> there;
    for (std::size_t seed = 0; seed < seeds_.size(); ++seed) {
      const double difference = values[model][seed][point] - values[minus][seed][point];
      if (!std::isnan(difference)) there.push_back(difference);
    }
    result.push_back(summary_of(there));
  }
  return result;
}

std::vector<MeanInterval> MqarPairs::curve(std::size_t model) const { return means(curves_, model); }
std::vector<MeanInterval> MqarPairs::curve(std::size_t model, std::size_t minus) const {
  return differences(curves_, model, minus);
}
std::vector<MeanInterval> MqarPairs::by_test(std::size_t model) const { return means(scores_, model); }
std::vector<MeanInterval> MqarPairs::by_test(std::size_t model, std::size_t minus) const {
  return differences(scores_, model, minus);
}

}  // namespace deltanet
