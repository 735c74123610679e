#include "experiments/text_model.h"

#include <algorithm>
#include <memory>
#include <numbers>
#include <sstream>
#include <vector>

#include "base/file.h"
#include "base/rng.h"
#include "base/stopwatch.h"
#include "data/tokenizer/bpe_train.h"
#include "deltanet/error.h"
#include "deltanet/tokenizer.h"
#include "model/save_weights.h"
#include "train/learner.h"
#include "train/schedule.h"

namespace deltanet {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizer = "tokenizer.json";

Config config_of(const TextModelOptions& options, int64_t vocab_size) {
  Config config = row_config(options.row, "340m");
  config.vocab_size = vocab_size;
  config.hidden_size = options.d_model;
  config.num_hidden_layers = options.layers;
  config.num_heads = config.num_v_heads = options.heads;
  config.head_dim = config.head_v_dim = options.d_model / options.heads;
  config.intermediate_size = 3 * options.d_model;
  config.bos_token_id.reset();
  config.eos_token_id.reset();
  validate(config, "text_model");
  return config;
}

// Windows of the text at random places, some of whose tokens are read as others of the text.
class Windows {
 public:
  Windows(const TextModelOptions& options, const std::vector<int32_t>& text)
      : options_(options), text_(text), rng_(options.seed, 1) {
    for (int64_t n = 0; n <= options.sequences; ++n) offsets.push_back(n * options.length);
    ids.resize(offsets.back());
    targets.resize(offsets.back());
  }

  void draw() {
    for (int64_t n = 0; n < options_.sequences; ++n) {
      const auto from = text_.begin() + place(static_cast<int64_t>(text_.size()) - options_.length);
      std::copy_n(from, options_.length, ids.begin() + offsets[n]);
      std::copy_n(from + 1, options_.length, targets.begin() + offsets[n]);
    }
    for (int32_t& id : ids) {
      if (rng_.uniform() < options_.noise) id = text_[place(static_cast<int64_t>(text_.size()))];
    }
  }

  std::vector<int32_t> ids, targets;
  std::vector<int64_t> offsets;

 private:
  int64_t place(int64_t count) { return static_cast<int64_t>(rng_.uniform() * static_cast<double>(count)); }

  const TextModelOptions& options_;
  const std::vector<int32_t>& text_;
  Rng rng_;
};

// [text](target) becomes text.
std::string without_targets(std::string_view line) {
  std::string text;
  while (!line.empty()) {
    const std::size_t middle = line.find("]("), end = line.find(')', middle);
    const std::size_t begin = middle == std::string_view::npos ? middle : line.rfind('[', middle);
    if (begin == std::string_view::npos || end == std::string_view::npos) break;
    text += line.substr(0, begin);
    text += line.substr(begin + 1, middle - begin - 1);
    line.remove_prefix(end + 1);
  }
  return text += line;
}

}  // namespace

TextModelResult train_text_model(std::string_view text, const TextModelOptions& options, const fs::path& checkpoint,
                                 const std::function<void(const TextModelProgress&)>& progress) {
  constexpr double kClip = 1.0, kSmoothing = 0.95;
  const std::string tokenizer_json = data::train_bpe(text, options.vocab_size);
  fs::create_directories(checkpoint);
  AtomicFile file(checkpoint / kTokenizer);
  file.write(tokenizer_json);
  file.commit();
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer((checkpoint / kTokenizer).string());
  const std::vector<int32_t> ids = tokenizer->encode(text);
  if (static_cast<int64_t>(ids.size()) <= options.length + 1) {
    throw Error("[text_model] text: has " + std::to_string(ids.size()) + " tokens; expected more than " +
                std::to_string(options.length + 1));
  }

  Learner learner(config_of(options, tokenizer->vocab_size()), options.seed, {}, options.threads);
  const Schedule schedule{.peak = options.lr, .end_ratio = 0, .warmup = options.steps / 20, .steps = options.steps};
  Windows windows(options, ids);
  const auto tokens = static_cast<double>(windows.ids.size());
  const double bytes_per_token = static_cast<double>(text.size()) / static_cast<double>(ids.size());
  TextModelProgress now;
  double bits = 0, weight = 0;
  const Stopwatch clock;
  while (now.step < options.steps) {
    windows.draw();
    const double sum =
        learner.accumulate(windows.ids, windows.targets, windows.offsets, static_cast<float>(1.0 / tokens));
    learner.step(learning_rate(schedule, now.step), kClip);
    bits = kSmoothing * bits + (1 - kSmoothing) * sum / tokens / std::numbers::ln2 / bytes_per_token;
    weight = kSmoothing * weight + (1 - kSmoothing);
    ++now.step;
    now.bits = bits / weight;
    now.seconds = clock.seconds();
    now.bytes_per_second = static_cast<double>(now.step) * tokens * bytes_per_token / now.seconds;
    if (progress) progress(now);
  }
  save_weights(learner.weights(), checkpoint, {}, {{kTokenizer, tokenizer_json}}, options.threads);
  return {.bytes = static_cast<int64_t>(text.size()),
          .tokens = static_cast<int64_t>(ids.size()),
          .vocab_size = tokenizer->vocab_size(),
          .parameters = learner.weights().layout().parameter_count(),
          .bits = now.bits};
}

std::string prose_of(std::string_view markdown) {
  std::string prose;
  bool in_code = false, blank = true;
  std::istringstream lines{std::string(markdown)};
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) in_code = !in_code;
    if (in_code || line.starts_with("```") || line.starts_with("|") || line.starts_with("    ")) line.clear();
    if (line.empty() && blank) continue;  // one is enough
    blank = line.empty();
    prose += without_targets(line) + "\n";
  }
  return prose;
}

}  // namespace deltanet
