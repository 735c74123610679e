#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bench/floor.h"

// Training steps of language models, against what oneDNN reaches on the products they are made of.

namespace deltanet::bench {

struct TrainBenchOptions {
  std::vector<std::string> rows = {"gdn", "pgdn"};  // compared with the first
  std::string size = "340m", precision = "f32";
  int64_t batch = 1, length = 2048;
  int rounds = 3, steps = 1, threads = 0;
  bool small = false;      // 5.5 million parameters, 8 x 256 tokens, instead
  bool recompute = false;  // keep only the inputs of the layers
};

struct TrainRowResult {
  std::string row;
  int64_t parameters = 0;
  std::vector<double> seconds;  // of a step, one per round
  double tokens_per_second = 0, gflops = 0;
  double share = 0;    // of the rate that oneDNN reaches on the products
  double against = 0;  // time of a step against that of the first row
  double loss = 0;
};

struct TrainBenchResult {
  int threads = 0;
  int64_t batch = 0, length = 0;
  double product_rate = 0;  // GFLOP/s of oneDNN
  std::vector<TrainRowResult> rows;
  std::vector<std::pair<std::string, int64_t>> memory;  // what a step of the first row plans, in bytes
  int64_t peak = 0;                                     // what the process took, in bytes
  std::vector<Floor> floors;                            // promised for the paper's sizes

  int64_t planned() const;
};

TrainBenchResult measure_training(const TrainBenchOptions& options, const Report& report);

}  // namespace deltanet::bench
