#include "experiments/mqar_sweep.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "base/parallel.h"
#include "base/stopwatch.h"
#include "deltanet/error.h"
#include "deltanet/rows.h"

namespace deltanet {
namespace {

// Tasks of the cuts that are not among the paper's tests, to be read at the end of a run.
std::vector<MqarPart> cut_tests() {
  std::vector<MqarPart> parts;
  const std::vector<MqarPart> tests = mqar_tests();
  for (const MqarCut& cut : mqar_cuts()) {
    for (const MqarTask& task : cut.tasks) {
      const MqarPart part{task, tests.front().examples};
      const bool known = std::find(tests.begin(), tests.end(), part) != tests.end() ||
                         std::find(parts.begin(), parts.end(), part) != parts.end();
      if (!known) parts.push_back(part);
    }
  }
  return parts;
}

// Runs with everything but row, size, learning rate and seed set: one for the mix, or one for each length and number of
// pairs that fit together.
std::vector<MqarRun> tasks_of(const MqarSweep& sweep) {
  std::vector<MqarRun> runs;
  if (sweep.lengths.empty()) runs.push_back(sweep.base);
  for (const int64_t length : sweep.lengths) {
    for (const int64_t pairs : sweep.pairs) {
      const MqarTask task{length, pairs};
      if (length < 4 * pairs) continue;
      validate(sweep.base.options, task);
      MqarRun run = sweep.base;
      run.train = {{task, sweep.examples}};
      run.tests = {{task, std::min<int64_t>(1000, std::max<int64_t>(1, sweep.examples / 100))}};
      run.more_tests.clear();
      runs.push_back(run);
    }
  }
  if (runs.empty()) throw Error("[mqar] no length is four times a number of pairs or more; nothing to run");
  return runs;
}

double work_of(const MqarRun& run) { return mqar_tokens(run) * static_cast<double>(run.d_model); }

}  // namespace

MqarSweep paper_mqar_sweep() {
  MqarSweep sweep;
  sweep.models = {"dn", "pdn", "gdn", "pgdn"};
  sweep.d_models = {64, 128, 256};
  sweep.lrs = {1e-3, 3.16e-3, 1e-2, 3.16e-2};
  sweep.seeds = {0};
  sweep.examples = 100000;
  sweep.base.more_tests = cut_tests();
  return sweep;
}

MqarSweep quick_mqar_sweep() {
  constexpr int64_t kSteps = 3000;
  MqarSweep sweep;
  sweep.models = {"dn", "pdn", "gdn", "pgdn"};
  // Seeds differ by ten points, so the time goes into many of them instead of into learning rates. With this one and so
  // many steps no run stayed without recall; with 1e-2 and fewer steps some did.
  sweep.d_models = {32};
  sweep.lrs = {5e-3};
  sweep.seeds = {0, 1, 2, 3, 4, 5};
  sweep.examples = 32000;
  sweep.base = quick_mqar_run(kSteps);
  return sweep;
}

MqarSweep paired_mqar_sweep(int64_t seeds, int64_t steps) {
  // A state of 16 x 16 in each layer: full with 16 pairs, and small enough that a run takes seconds, so that there can
  // be many of them. One run says nothing: the difference of a pair varies by five points from seed to seed.
  MqarSweep sweep;
  sweep.models = {"dn", "pdn"};
  sweep.d_models = {16};
  sweep.lrs = {5e-3};
  for (int64_t seed = 0; seed < seeds; ++seed) sweep.seeds.push_back(static_cast<uint64_t>(seed));
  sweep.base = quick_mqar_run(steps);
  sweep.base.heads = 1;
  sweep.base.batch = 16;
  const int64_t longer = std::max<int64_t>(1, steps / 4), short_ones = std::max<int64_t>(1, steps - longer);
  sweep.base.train = {{{16, 4}, short_ones * sweep.base.batch}, {{32, 8}, longer * sweep.base.batch}};
  sweep.base.tests = {{{16, 4}, 200}, {{32, 8}, 200}, {{64, 16}, 200}, {{128, 32}, 100}};
  sweep.base.stop_accuracy = 2;  // never: a curve has as many points as the one that it is compared with
  return sweep;
}

std::vector<MqarRun> mqar_runs(const MqarSweep& sweep) {
  std::vector<MqarRun> runs;
  std::set<std::string> keys;
  for (const uint64_t seed : sweep.seeds) {
    for (const MqarRun& task : tasks_of(sweep)) {
      for (const int64_t d_model : sweep.d_models) {
        for (const double lr : sweep.lrs) {
          for (const std::string& model : sweep.models) {
            MqarRun run = task;
            run.row = find_row(model).name;
            run.d_model = d_model;
            run.lr = lr;
            run.seed = seed;
            mqar_config(run);  // throws now what would be wrong later
            if (keys.insert(mqar_key(run)).second) runs.push_back(run);
          }
        }
      }
    }
  }
  return runs;
}

double mqar_tokens(const MqarRun& run) {
  double tokens = 0;
  for (const MqarPart& part : run.train) {
    tokens += static_cast<double>(part.examples) * static_cast<double>(part.task.length);
  }
  return tokens * static_cast<double>(run.epochs);
}

void run_mqar_sweep(const std::vector<MqarRun>& runs, int threads, MqarResults& results, const MqarObserver& observer) {
  std::mutex mutex;
  std::vector<bool> busy(static_cast<std::size_t>(threads));
  double work = 0, done = 0;
  for (const MqarRun& run : runs) work += work_of(run);
  const Stopwatch clock;
  const auto begin = [&] {
    const std::lock_guard lock(mutex);
    const auto free = std::find(busy.begin(), busy.end(), false);
    *free = true;
    return static_cast<int>(free - busy.begin());
  };
  parallel_for(threads, static_cast<int64_t>(runs.size()), [&](int64_t i) {
    const ThreadLimit one(1);  // inside a run; the other cores have runs of their own
    const MqarRun& run = runs[i];
    const int worker = begin();
    const MqarRecord record{run, run_mqar(run, [&](const MqarProgress& p) { observer.progress(worker, run, p); })};
    const std::lock_guard lock(mutex);
    busy[worker] = false;
    done += work_of(run);
    observer.finished(worker, record, done / work, clock.seconds());
    results.add(record);
  });
}

}  // namespace deltanet
