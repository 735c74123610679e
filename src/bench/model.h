#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/floor.h"

// A language model against the machine. Prefill is compared with what oneDNN reaches on the largest product of a layer,
// decoding with the bandwidth of memory, both measured in the same run.

namespace deltanet::bench {

struct ModelBenchOptions {
  std::string preset = "pgdn-340m";
  std::string directory;  // a checkpoint's configuration instead; it is also what is loaded
  std::string scratch;    // where a checkpoint is written for a moment; empty: where the system has such files
  int64_t tokens = 2048;  // of the prefill
  int rounds = 3, steps = 60, threads = 0;
  bool load = true;
};

struct ModelFigure {
  std::string name;  // for programs
  std::string unit;
  Floor floor;
};

struct ModelBenchResult {
  std::string model;
  int64_t parameters = 0;
  int threads = 0;
  std::vector<ModelFigure> figures;
};

ModelBenchResult measure_model(const ModelBenchOptions& options, const Report& report);

}  // namespace deltanet::bench
