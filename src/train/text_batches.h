#pragma once

#include <memory>
#include <span>
#include <vector>

#include "deltanet/tokenizer.h"
#include "train/batch_source.h"
#include "train/train_config.h"

namespace deltanet {

struct SampleOptions {
  int64_t sequence_length = 0;
  uint64_t seed = 0;
  bool shuffle = true;
  int32_t boundary = -1;  // the state starts anew after this token; -1: never
};

// Samples of sequence_length tokens and their targets, cut from a text that is held in memory. Throws Error where the
// text is too short for one.
class TextBatches final : public BatchSource {
 public:
  using Tokens = std::shared_ptr<const std::vector<int32_t>>;  // shared by training and held-out parts

  TextBatches(Tokens tokens, int64_t begin, int64_t end, const SampleOptions& options);

  void fill(int64_t first, int64_t count, Batch& out) const override;
  int64_t samples_per_epoch() const override { return samples_; }

 private:
  Tokens tokens_;
  int64_t begin_, samples_;
  SampleOptions options_;
};

struct TrainingData {
  std::unique_ptr<BatchSource> train, held_out;
};

// The data that a config asks for; without eval_data the last eval_batches * batch_size samples are held out, at most a
// tenth of all. Everything is checked here: files, lengths, ids against the vocabulary.
TrainingData load_training_data(const TrainConfig& config, int64_t vocab_size);

// Where i of [0, n) stands in the order that belongs to (seed, epoch): a permutation without a table.
int64_t shuffled(int64_t i, int64_t n, uint64_t seed, uint64_t epoch);

}  // namespace deltanet
