#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/corpus/batches.h"
#include "train/batch_source.h"
#include "train/train_config.h"

namespace deltanet {

// The samples of a corpus as data::BatchPlan orders them.
class CorpusBatches final : public BatchSource {
 public:
  CorpusBatches(std::shared_ptr<const data::TokenStore> store, const data::BatchOptions& options)
      : plan_(std::move(store), options) {}

  void fill(int64_t first, int64_t count, Batch& out) const override { out = plan_.samples(first, first + count); }
  int64_t samples_per_epoch() const override { return plan_.samples_per_epoch(); }

 private:
  data::BatchPlan plan_;
};

struct TrainingData {
  std::unique_ptr<BatchSource> train, held_out;  // held_out: null if there is too little data
};

// The tokenizer of a run: a path as load_tokenizer() takes it, or "bytes". Where the config names none it is that of
// the token shards, empty if they hold none; text is read as bytes if that fits the model's vocabulary, otherwise it is
// an Error.
std::string chosen_tokenizer(const TrainConfig& config, int64_t vocab_size);

// The data that a config asks for: a directory of token shards (`deltanet tokenize`), or text and JSON lines, which are
// tokenized into memory. Without eval_data the last eval_batches * batch_size samples are held out, at most a tenth of
// all. Everything is checked here: files, lengths, ids against the vocabulary.
TrainingData load_training_data(const TrainConfig& config, int64_t vocab_size);

}  // namespace deltanet
