#include "train/training_data.h"

#include <algorithm>
#include <optional>
#include <string>

#include "data/shards.h"
#include "data/tokenize.h"
#include "deltanet/error.h"
#include "deltanet/tokenizer.h"

namespace deltanet {
namespace {

using StorePointer = std::shared_ptr<const data::TokenStore>;

StorePointer open_store(const TrainConfig& config, const std::string& path, int64_t vocab_size) {
  StorePointer store;
  if (data::is_token_directory(path)) {
    store = std::make_shared<data::ShardStore>(path);
  } else {
    const std::unique_ptr<Tokenizer> tokenizer =
        config.tokenizer == "bytes" ? byte_tokenizer() : load_tokenizer(config.tokenizer);
    data::TextSource source({path});
    store = data::tokenize_to_memory(source, *tokenizer, tokenizer->eos(), config.threads);
  }
  data::check_vocabulary(*store, vocab_size);
  return store;
}

}  // namespace

TrainingData load_training_data(const TrainConfig& config, int64_t vocab_size) {
  if (config.data.empty()) {
    throw Error("[train] data: not given; expected text, JSON lines or a directory that `deltanet tokenize` made");
  }
  const data::BatchOptions shuffled{.sequence_length = config.sequence_length,
                                    .batch_size = config.batch_size,
                                    .seed = config.seed,
                                    .document_boundaries = config.document_boundaries,
                                    .mask_boundaries = config.document_boundaries};
  data::BatchOptions in_order = shuffled;
  in_order.shuffle = false;

  const StorePointer store = open_store(config, config.data, vocab_size);
  if (!config.eval_data.empty()) {
    return {std::make_unique<CorpusBatches>(store, shuffled),
            std::make_unique<CorpusBatches>(open_store(config, config.eval_data, vocab_size), in_order)};
  }
  auto all = std::make_unique<CorpusBatches>(store, shuffled);
  const int64_t held_out = std::min(config.eval_batches * config.batch_size, all->samples_per_epoch() / 10);
  if (held_out == 0) return {std::move(all), nullptr};
  // Samples overlap by the one token that is only predicted.
  const int64_t cut = (all->samples_per_epoch() - held_out) * config.sequence_length;
  return {std::make_unique<CorpusBatches>(data::part_of(store, 0, cut + 1), shuffled),
          std::make_unique<CorpusBatches>(data::part_of(store, cut, store->size()), in_order)};
}

}  // namespace deltanet
