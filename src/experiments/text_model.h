#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

// A small language model of a small text, trained in half a minute: what the quick start shows.

namespace deltanet {

struct TextModelOptions {
  std::string row = "pgdn";  // of the table
  int64_t steps = 300, vocab_size = 3072;
  int64_t d_model = 128, layers = 2, heads = 2;
  int64_t sequences = 8, length = 128;  // of a step
  double lr = 3e-3;
  double noise = 0.1;  // share of tokens that are read as others, so that it goes on well after words of its own
  uint64_t seed = 0;
  int threads = 0;
};

struct TextModelProgress {
  int64_t step = 0;
  double bits = 0;  // per byte of text, a mean over the last steps
  double seconds = 0, bytes_per_second = 0;
};

struct TextModelResult {
  int64_t bytes = 0, tokens = 0, vocab_size = 0, parameters = 0;
  double bits = 0;
};

// Makes a tokenizer for the text, trains a model on it and writes both as a checkpoint. Throws Error for a
// text that is shorter than a sequence.
TextModelResult train_text_model(std::string_view text, const TextModelOptions& options,
                                 const std::filesystem::path& checkpoint,
                                 const std::function<void(const TextModelProgress&)>& progress = {});

// The sentences of a Markdown file: without tables, code and links' targets.
std::string prose_of(std::string_view markdown);

}  // namespace deltanet
