#include "experiments/mqar_run.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "base/rng.h"
#include "base/stopwatch.h"
#include "deltanet/error.h"
#include "experiments/small_config.h"
#include "train/learner.h"
#include "train/schedule.h"

namespace deltanet {
namespace {

constexpr uint64_t kOrderStream = uint64_t{3} << 48;  // beside the streams of the splits
constexpr int64_t kTokens = 4096;                     // tokens in a pass: what it keeps stays near the core

// A batch holds examples of one part, so that all of its sequences have one length.
struct BatchAt {
  int64_t first, count;
};

std::vector<BatchAt> cut_batches(const std::vector<MqarPart>& parts, int64_t batch) {
  std::vector<BatchAt> batches;
  int64_t begin = 0;
  for (const MqarPart& part : parts) {
    for (int64_t i = 0; i < part.examples; i += batch) {
      batches.push_back({begin + i, std::min(batch, part.examples - i)});
    }
    begin += part.examples;
  }
  return batches;
}

void shuffle(std::vector<BatchAt>& batches, uint64_t seed, int64_t epoch) {
  Rng rng(seed, kOrderStream | static_cast<uint64_t>(epoch));
  for (std::size_t i = batches.size(); i > 1; --i) {
    std::swap(batches[i - 1], batches[static_cast<std::size_t>(rng.uniform() * static_cast<double>(i))]);
  }
}

// Calls pass(ids, targets, offsets) for runs of whole sequences of at most kTokens tokens.
template <class PassOver>
void for_passes(const MqarBatch& batch, const PassOver& pass) {
  const auto examples = static_cast<int64_t>(batch.offsets.size()) - 1;
  const int64_t L = batch.offsets[1], step = std::max<int64_t>(1, kTokens / L);
  for (int64_t i = 0; i < examples; i += step) {
    const int64_t count = std::min(step, examples - i);
    pass(std::span(batch.ids).subspan(i * L, count * L), std::span(batch.targets).subspan(i * L, count * L),
         std::span(batch.offsets).first(count + 1));
  }
}

class Evaluation {
 public:
  Evaluation(const MqarRun& run, const std::vector<MqarPart>& parts)
      : data_(run.options, parts, run.seed, MqarSplit::kTest) {}

  std::vector<MqarScore> operator()(LanguageModel& model) {
    std::vector<MqarScore> scores;
    int64_t first = 0;
    for (const MqarPart& part : data_.parts()) {
      int64_t right = 0;
      for (int64_t i = 0; i < part.examples; i += kExamples) {
        right += count_right(model, first + i, std::min(kExamples, part.examples - i));
      }
      scores.push_back({part.task, static_cast<double>(right) / static_cast<double>(part.examples * part.task.pairs)});
      first += part.examples;
    }
    return scores;
  }

 private:
  static constexpr int64_t kExamples = 256;

  int64_t count_right(LanguageModel& model, int64_t first, int64_t count) {
    data_.read(first, count, batch_);
    int64_t right = 0;
    for_passes(batch_,
               [&](std::span<const int32_t> ids, std::span<const int32_t> targets, std::span<const int64_t> offsets) {
                 log_probs_.resize(ids.size());
                 const auto greedy = std::make_unique<bool[]>(ids.size());
                 try {
                   model.log_probs(ids, targets, offsets, nullptr, log_probs_.data(), greedy.get());
                 } catch (const NotFiniteError&) {
                   return;  // a run that diverged recalls nothing, and its sweep goes on
                 }
                 right += std::count(greedy.get(), greedy.get() + ids.size(), true);
               });
    return right;
  }

  MqarData data_;
  MqarBatch batch_;
  std::vector<double> log_probs_;
};

double mean_accuracy(const std::vector<MqarScore>& scores) {
  double sum = 0;
  for (const MqarScore& score : scores) sum += score.accuracy;
  return sum / static_cast<double>(scores.size());
}

void check(const MqarRun& run) {
  const auto fail = [](const std::string& what) { throw Error("[mqar] " + what); };
  if (run.train.empty() || run.tests.empty()) fail("tasks: none; expected some to train on and some to test");
  for (const auto* parts : {&run.train, &run.tests, &run.more_tests}) {
    for (const MqarPart& part : *parts) validate(run.options, part.task);
  }
  if (run.epochs < 1 || run.batch < 1 || run.validations < 1) fail("epochs, batch, validations: expected at least 1");
  if (!(run.lr > 0) || !std::isfinite(run.lr)) fail("lr: given " + std::to_string(run.lr) + "; expected above 0");
  if (!(run.initializer_range >= 0) || !std::isfinite(run.initializer_range)) {
    fail("initializer_range: given " + std::to_string(run.initializer_range) + "; expected 0 or more");
  }
  if (run.d_model < 1 || run.layers < 1 || run.heads < 1 || run.d_model % run.heads != 0) {
    fail("d_model: given " + std::to_string(run.d_model) + "; expected a multiple of the heads, " +
         std::to_string(run.heads));
  }
}

}  // namespace

Config mqar_config(const MqarRun& run) {
  check(run);
  const int64_t intermediate = (run.d_model * 8 / 3 + 63) / 64 * 64;
  Config config =
      small_config(run.row, {run.d_model, run.layers, run.heads, intermediate, run.options.vocab_size}, "mqar");
  config.initializer_range =
      run.initializer_range > 0 ? run.initializer_range : 1 / std::sqrt(static_cast<double>(run.d_model));
  return config;
}

MqarRun quick_mqar_run(int64_t steps) {
  MqarRun run;
  run.lr = 5e-3;
  run.batch = 32;
  run.epochs = 1;
  run.validations = 10;
  // 0.02 suits widths of a thousand. In a model of 32 it makes every projection and convolution nearly nothing.
  run.initializer_range = 0;
  run.options = {.vocab_size = 128, .filler = MqarFiller::kZeros};
  // Mostly short ones, as in the paper's mix: recall is found there first, and then carries over to the longer ones.
  const int64_t longer = std::max<int64_t>(1, steps / 5), short_ones = std::max<int64_t>(1, steps - 2 * longer);
  run.train = {{{16, 4}, short_ones * run.batch}, {{32, 8}, longer * run.batch}, {{64, 16}, longer * run.batch}};
  run.tests = {{{32, 8}, 200}, {{64, 16}, 200}, {{128, 32}, 100}, {{256, 60}, 50}};
  return run;
}

int64_t mqar_steps(const MqarRun& run) {
  return run.epochs * static_cast<int64_t>(cut_batches(run.train, run.batch).size());
}

MqarResult run_mqar(const MqarRun& run, const std::function<void(const MqarProgress&)>& progress) {
  const Stopwatch clock;
  Learner learner(mqar_config(run), run.seed, {.beta2 = 0.999, .weight_decay = run.weight_decay}, 1);
  const MqarData data(run.options, run.train, run.seed, MqarSplit::kTrain);
  Evaluation validation(run, run.tests);
  std::vector<BatchAt> batches = cut_batches(run.train, run.batch);

  MqarResult result;
  MqarProgress now{.steps = mqar_steps(run)};
  MqarBatch batch;
  double loss = 0;
  int64_t labels = 0, validations = 0;
  const auto epoch_steps = static_cast<int64_t>(batches.size());
  for (; now.step < now.steps && result.end == MqarEnd::kSteps; ++now.step) {
    const Stopwatch step_clock;
    if (now.step % epoch_steps == 0) shuffle(batches, run.seed, now.step / epoch_steps);
    const BatchAt& at = batches[now.step % epoch_steps];
    data.read(at.first, at.count, batch);
    const float scale = 1.0f / static_cast<float>(batch.labels);
    double batch_loss = 0;
    for_passes(batch, [&](auto ids, auto targets, auto offsets) {
      batch_loss += learner.accumulate(ids, targets, offsets, scale);
    });
    const double done = static_cast<double>(now.step) / static_cast<double>(now.steps);
    if (!learner.step(run.lr * half_cosine(done), std::numeric_limits<double>::infinity())) {
      result.end = MqarEnd::kDiverged;  // weights that are not finite stay so
    }
    result.train_seconds += step_clock.seconds();
    result.tokens += static_cast<int64_t>(batch.ids.size());
    loss += batch_loss;
    labels += batch.labels;

    now.validated = (now.step + 1) * run.validations / now.steps > validations || result.end == MqarEnd::kDiverged;
    now.loss = loss / static_cast<double>(labels);
    now.seconds = clock.seconds();
    now.tokens_per_second = static_cast<double>(result.tokens) / result.train_seconds;
    if (now.validated) {
      ++validations;
      result.scores = validation(learner.model());
      now.accuracy = result.accuracy = mean_accuracy(result.scores);
      loss = 0, labels = 0;
      if (now.accuracy >= run.stop_accuracy && result.end == MqarEnd::kSteps) result.end = MqarEnd::kAccuracy;
    }
    MqarProgress shown = now;
    ++shown.step;
    if (now.validated) result.curve.push_back(shown);
    if (progress) progress(shown);
  }
  result.steps = now.step;
  if (!run.more_tests.empty()) {
    for (const MqarScore& score : Evaluation(run, run.more_tests)(learner.model())) result.scores.push_back(score);
  }
  result.seconds = clock.seconds();
  return result;
}

}  // namespace deltanet
