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
#include "experiments/small_config.h"
#include "model/save_weights.h"
#include "train/learner.h"
#include "train/schedule.h"

namespace deltanet {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizer = "tokenizer.json";

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

// [text](target) becomes text, and nothing is left of a picture.
std::string without_targets(std::string_view markdown) {
  std::string text;
  while (!markdown.empty()) {
    const std::size_t middle = markdown.find("]("), end = markdown.find(')', middle);
    const std::size_t begin = middle == std::string_view::npos ? middle : markdown.rfind('[', middle);
    if (begin == std::string_view::npos || end == std::string_view::npos) break;
    const bool is_picture = begin > 0 && markdown[begin - 1] == '!';
    text += markdown.substr(0, is_picture ? begin - 1 : begin);
    if (!is_picture) text += markdown.substr(begin + 1, middle - begin - 1);
    markdown.remove_prefix(end + 1);
  }
  return text += markdown;
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

  const Config config = small_config(
      options.row, {options.d_model, options.layers, options.heads, 3 * options.d_model, tokenizer->vocab_size()},
      "text_model");
  Learner learner(config, options.seed, {}, options.threads);
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
  std::string sentences;
  bool in_code = false;
  std::istringstream lines{std::string(markdown)};
  for (std::string line; std::getline(lines, line);) {
    const bool fence = line.starts_with("```");
    in_code ^= fence;
    const bool left_out = in_code || fence || line.starts_with("|") || line.starts_with("    ");
    sentences += left_out ? "\n" : line + "\n";
  }
  std::string prose;
  for (const char c : without_targets(sentences)) {
    const bool blank = prose.empty() || prose.ends_with("\n\n");  // one empty line is enough
    if (c != '\n' || !blank) prose += c;
  }
  return prose;
}

}  // namespace deltanet
