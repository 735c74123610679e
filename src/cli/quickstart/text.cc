#include "cli/quickstart/text.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <vector>

#include "base/rng.h"
#include "base/text.h"
#include "cli/live_lines.h"
#include "cli/terminal.h"
#include "cli/text_stream.h"
#include "deltanet/error.h"
#include "model/generation/generate.h"
#include "train/learner.h"
#include "train/schedule.h"

namespace deltanet::cli {
namespace {

constexpr int64_t kBytes = 256;

Config text_config(const TextOptions& options) {
  Config config = row_config("pgdn", "340m");
  config.vocab_size = kBytes;
  config.hidden_size = options.d_model;
  config.num_hidden_layers = options.layers;
  config.num_heads = config.num_v_heads = options.heads;
  config.head_dim = config.head_v_dim = options.d_model / options.heads;
  config.intermediate_size = 3 * options.d_model;
  config.bos_token_id.reset();
  config.eos_token_id.reset();
  validate(config, "quickstart");
  return config;
}

// Windows of the text at random places.
class Windows {
 public:
  Windows(const TextOptions& options, const std::vector<int32_t>& ids) : options_(options), text_(ids), rng_(0, 1) {
    for (int64_t n = 0; n <= options.sequences; ++n) offsets.push_back(n * options.length);
    ids_.resize(offsets.back());
    targets_.resize(offsets.back());
  }

  void draw() {
    const auto places = static_cast<double>(static_cast<int64_t>(text_.size()) - options_.length);
    for (int64_t n = 0; n < options_.sequences; ++n) {
      const int32_t* from = text_.data() + static_cast<int64_t>(rng_.uniform() * places);
      std::copy_n(from, options_.length, ids_.begin() + offsets[n]);
      std::copy_n(from + 1, options_.length, targets_.begin() + offsets[n]);
    }
  }

  const std::vector<int32_t>& ids() const { return ids_; }
  const std::vector<int32_t>& targets() const { return targets_; }
  std::vector<int64_t> offsets;

 private:
  const TextOptions& options_;
  const std::vector<int32_t>& text_;
  Rng rng_;
  std::vector<int32_t> ids_, targets_;
};

double train(const TextOptions& options, const std::vector<int32_t>& text, Learner& learner) {
  constexpr double kPeak = 3e-3, kClip = 1.0, kSmoothing = 0.95, kLineEvery = 5.0;
  constexpr int64_t kShares = 1000;  // the clock, not a number of steps, drives the schedule
  Windows windows(options, text);
  const auto tokens = static_cast<double>(windows.ids().size());
  LiveLines lines(1);
  double loss = 0, weight = 0, next_line = kLineEvery;
  const auto start = std::chrono::steady_clock::now();
  for (int64_t step = 1;; ++step) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (step > 1 && seconds >= options.seconds) break;
    windows.draw();
    const double sum =
        learner.accumulate(windows.ids(), windows.targets(), windows.offsets, static_cast<float>(1.0 / tokens));
    const auto share = static_cast<int64_t>(seconds / options.seconds * static_cast<double>(kShares));
    learner.step(learning_rate({.peak = kPeak, .end_ratio = 0, .warmup = kShares / 50, .steps = kShares}, share),
                 kClip);
    loss = kSmoothing * loss + (1 - kSmoothing) * sum / tokens / std::numbers::ln2;
    weight = kSmoothing * weight + (1 - kSmoothing);
    const std::string line = fmt::format("step {}  {:.3f} bits per byte  {} bytes/s  {} left", step, loss / weight,
                                         count_text(static_cast<double>(step) * tokens / std::max(seconds, 1e-3)),
                                         duration_text(std::max(0.0, options.seconds - seconds)));
    lines.set(0, line);
    if (!lines.live() && seconds >= next_line) {
      lines.say(line);
      next_line += kLineEvery;
    }
  }
  return loss / weight;
}

void stream_sample(const TextOptions& options, LanguageModel& model) {
  const std::unique_ptr<Tokenizer> tokenizer = byte_tokenizer();
  const std::string prompt = "# ";
  TextStream stream(*tokenizer, {});
  const auto show = [](const std::string& text) { say(stdout, text); };
  GenerateOptions generation;
  generation.max_tokens = options.sample_bytes;
  generation.sampling = {.temperature = 0.7, .top_k = 40, .seed = 1};
  State state(model.layout(), 1);
  show(prompt);
  generate(model, state, std::vector<std::vector<int32_t>>{tokenizer->encode(prompt, false)}, generation,
           [&](int64_t, int32_t id) {
             show(stream.push(id));
             return true;
           });
  show(stream.finish() + "\n");
}

}  // namespace

double train_on_text(const TextOptions& options) {
  const std::vector<int32_t> text = byte_tokenizer()->encode(options.text, false);
  if (static_cast<int64_t>(text.size()) <= options.length + 1) {
    throw Error(fmt::format("[quickstart] text: has {} bytes; expected more than {}", text.size(), options.length + 1));
  }
  Learner learner(text_config(options), 0, {}, options.threads);
  const double bits = train(options, text, learner);
  fmt::print("{:.2f} bits per byte at the end. What it says:\n\n", bits);
  stream_sample(options, learner.model());
  return bits;
}

}  // namespace deltanet::cli
