#pragma once

#include <string>

namespace deltanet::cli {

struct TextOptions {
  std::string text;
  double seconds = 30;  // of training
  int64_t d_model = 128, layers = 2, heads = 2;
  int64_t sequences = 8, length = 128;
  int64_t sample_bytes = 300;
  int threads = 0;
};

// Trains a byte-level PGDN on a text and streams a sample of what it says. Returns the loss of the last steps in bits
// per byte.
double train_on_text(const TextOptions& options);

}  // namespace deltanet::cli
