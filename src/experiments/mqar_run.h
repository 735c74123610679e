#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/synthetic/mqar.h"
#include "model/config/config.h"

namespace deltanet {

// One model trained on MQAR. The defaults are those of the paper (and of zoology).
struct MqarRun {
  std::string row = "pgdn";  // of the table
  int64_t d_model = 64, layers = 2, heads = 2;
  double lr = 1e-3;
  uint64_t seed = 0;  // of weights, examples and order
  MqarOptions options;
  std::vector<MqarPart> train = mqar_train_mix();
  std::vector<MqarPart> tests = mqar_tests();  // their mean accuracy decides when to stop
  std::vector<MqarPart> more_tests;            // read at the end only
  int64_t epochs = 32, batch = 256;
  int64_t validations = 32;  // spread evenly over the steps
  double weight_decay = 0.1, stop_accuracy = 0.99;
  double initializer_range = 0.02;  // standard deviation of the first weights; 0: d_model^-1/2
};

struct MqarProgress {
  int64_t step = 0, steps = 0;
  double loss = 0;         // mean over the labels since the last validation
  double accuracy = 0;     // of the last validation
  bool validated = false;  // just now: otherwise the accuracy is an older one
  double seconds = 0, tokens_per_second = 0;
};

struct MqarScore {
  MqarTask task;
  double accuracy = 0;
};

enum class MqarEnd { kSteps, kAccuracy, kDiverged };

struct MqarResult {
  double accuracy = 0;              // mean over `tests`
  std::vector<MqarScore> scores;    // of `tests`, then of `more_tests`
  std::vector<MqarProgress> curve;  // at the validations
  int64_t steps = 0, tokens = 0;
  double seconds = 0, train_seconds = 0;
  MqarEnd end = MqarEnd::kSteps;
};

// The paper's experiment in small, for minutes on a core: few tokens, no filler to confuse them, sequences short enough
// to learn recall from, and tests up to and beyond the edge of what the state of d_model 32 holds. Every example is
// seen once.
MqarRun quick_mqar_run(int64_t steps);

// Two layers of mixer and MLP with tied embeddings, as in the paper and in zoology; heads of d_model / heads. Throws
// Error where settings of the run are impossible.
Config mqar_config(const MqarRun& run);
int64_t mqar_steps(const MqarRun& run);

// Trains on the calling thread. Accuracies count the labelled positions only: the share of examples' labels that are
// the most probable token. `progress` is called after every step.
MqarResult run_mqar(const MqarRun& run, const std::function<void(const MqarProgress&)>& progress = {});

}  // namespace deltanet
