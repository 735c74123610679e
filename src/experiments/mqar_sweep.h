#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "experiments/mqar_results.h"

// Models x tasks x learning rates x seeds, a run on each core.

namespace deltanet {

struct MqarSweep {
  std::vector<std::string> models;
  std::vector<int64_t> lengths, pairs;  // empty: the paper's mix
  std::vector<int64_t> d_models;
  std::vector<double> lrs;
  std::vector<uint64_t> seeds;
  int64_t examples = 0;  // of each task in an epoch, for tasks that are trained one by one
  MqarRun base;
};

MqarSweep paper_mqar_sweep();  // the full grid
MqarSweep quick_mqar_sweep();  // minutes on two cores
// DeltaNet and PDN on small tasks, with the same seeds and in fixed numbers of steps: three seconds for 6,000 of them.
MqarSweep paired_mqar_sweep(int64_t seeds, int64_t steps);

// Seeds outermost, so that a sweep that is stopped early has compared all models. A run that is asked for twice, also
// by two names of one row, is one run: otherwise it would count as two seeds. Throws Error where a run is impossible.
std::vector<MqarRun> mqar_runs(const MqarSweep& sweep);

// Tokens of the whole training; a run that reaches its accuracy early takes fewer.
double mqar_tokens(const MqarRun& run);

// What a sweep says while it goes on, from any thread. `worker` is the one that has the run, 0 .. threads-1.
struct MqarObserver {
  std::function<void(int worker, const MqarRun& run, const MqarProgress& progress)> progress;
  // `done` of 1: the share of the work that is finished, seconds after the beginning.
  std::function<void(int worker, const MqarRecord& record, double done, double seconds)> finished;
};

// Makes the runs, `threads` at a time, and adds each to the results when it is done.
void run_mqar_sweep(const std::vector<MqarRun>& runs, int threads, MqarResults& results, const MqarObserver& observer);

}  // namespace deltanet
