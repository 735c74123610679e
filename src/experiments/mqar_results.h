#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "experiments/mqar_run.h"

namespace deltanet {

struct MqarRecord {
  MqarRun run;
  MqarResult result;
};

// The text that tells runs apart: all settings of a run as JSON.
std::string mqar_key(const MqarRun& run);
// The same without learning rate and seed: runs that have this in common may be averaged over seeds.
std::string mqar_group(const MqarRun& run);

// Finished runs in a file of JSON lines, one object each: the settings, the scores and the curve. A line is written at
// once, and a last line that a crash cut short is taken away when the file is opened again.
class MqarResults {
 public:
  explicit MqarResults(std::filesystem::path path);  // reads what is there

  const std::vector<MqarRecord>& records() const { return records_; }
  const MqarRecord* find(const MqarRun& run) const;
  void add(const MqarRecord& record);

 private:
  std::filesystem::path path_;
  std::vector<MqarRecord> records_;
};

// What the seeds of one group gave at the learning rate whose mean accuracy is best.
struct MqarBest {
  std::string group;
  std::string row;
  int64_t d_model = 0;
  std::vector<MqarPart> train;
  double lr = 0;
  std::vector<const MqarRecord*> seeds;

  double mean() const;
  double lowest() const;
  double median() const;
  double highest() const;
  double mean(const MqarTask& task) const;  // NaN where it was not tested
};

// In the order in which groups first occur.
std::vector<MqarBest> best_runs(const std::vector<MqarRecord>& records);

}  // namespace deltanet
