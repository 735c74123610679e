#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/statistics.h"
#include "experiments/mqar_run.h"

namespace deltanet {

// What models have reached so far that are trained with the same seeds on the same examples: their curves grow while
// the runs go on. All calls may come from any thread.
class MqarPairs {
 public:
  explicit MqarPairs(const std::vector<MqarRun>& runs);

  // At a validation of one of the runs, and with its tests at the end.
  void add(const MqarRun& run, const MqarProgress& validation);
  void add(const MqarRun& run, const std::vector<MqarScore>& scores);

  const std::vector<std::string>& models() const { return models_; }  // rows, in the order of the runs
  const std::vector<int64_t>& steps() const { return steps_; }        // of the validations
  const std::vector<MqarTask>& tests() const { return tests_; }
  int64_t seeds() const { return static_cast<int64_t>(seeds_.size()); }

  // Over the seeds that are there: of a model, or of the differences of two, seed by seed; as many as there are points.
  // A mean of nothing is NaN.
  std::vector<MeanInterval> curve(std::size_t model) const;
  std::vector<MeanInterval> curve(std::size_t model, std::size_t minus) const;
  std::vector<MeanInterval> by_test(std::size_t model) const;
  std::vector<MeanInterval> by_test(std::size_t model, std::size_t minus) const;

 private:
  using Values = std::vector<std::vector<std::vector<double>>>;  // [model][seed][point], NaN: not there yet

  void set(Values& values, const MqarRun& run, std::size_t point, double value);
  std::vector<MeanInterval> means(const Values& values, std::size_t model) const;
  std::vector<MeanInterval> differences(const Values& values, std::size_t model, std::size_t minus) const;

  std::vector<std::string> models_;
  std::vector<uint64_t> seeds_;
  std::vector<int64_t> steps_;
  std::vector<MqarTask> tests_;
  mutable std::mutex mutex_;
  Values curves_, scores_;
};

}  // namespace deltanet
