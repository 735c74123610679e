#include "train/run/training_data.h"

#include <algorithm>
#include <optional>
#include <string>

#include "data/corpus/shards.h"
#include "data/corpus/tokenize.h"
#include "data/tokenizer/tokenizer_files.h"
#include "deltanet/error.h"
#include "deltanet/tokenizer.h"

namespace deltanet {
namespace {

using StorePointer = std::shared_ptr<const data::TokenStore>;

std::unique_ptr<Tokenizer> load(const std::string& tokenizer) {
  if (tokenizer.empty()) return nullptr;
  return tokenizer == "bytes" ? byte_tokenizer() : load_tokenizer(tokenizer);
}

StorePointer open_shards(const std::string& path, const std::string& name, const Tokenizer* tokenizer) {
  auto store = std::make_shared<data::ShardStore>(path);
  if (tokenizer && tokenizer->vocab_size() != store->meta().vocab_size) {
    throw Error("[train] tokenizer: given " + name + ", which has " + std::to_string(tokenizer->vocab_size()) +
                " tokens, but " + path + " was made with one of " + std::to_string(store->meta().vocab_size) +
                "; expected that one, or \"\" for the one among the data");
  }
  return store;
}

StorePointer open_text(const TrainConfig& config, const std::string& path, const Tokenizer* tokenizer) {
  if (!tokenizer) {
    throw Error("[train] tokenizer: not given, and " + config.data +
                " holds none; expected the one it was made with, for the text of " + path);
  }
  data::TextSource source({path});
  return data::tokenize_to_memory(source, *tokenizer, tokenizer->eos(), config.threads);
}

}  // namespace

std::string chosen_tokenizer(const TrainConfig& config, int64_t vocab_size) {
  if (!config.tokenizer.empty() || config.data.empty()) return config.tokenizer;
  if (data::is_token_directory(config.data)) {
    const data::ShardMeta meta = data::read_meta(config.data);
    if (meta.tokenizer == "bytes") return "bytes";
    const std::filesystem::path own = data::tokenizer_folder(config.data, meta.generation);
    return data::has_tokenizer(own) ? own.string() : "";
  }
  if (vocab_size == byte_tokenizer()->vocab_size()) return "bytes";
  throw Error("[train] tokenizer: not given, and the model's vocabulary has " + std::to_string(vocab_size) +
              " tokens; expected the path of a tokenizer, or \"bytes\"");
}

TrainingData load_training_data(const TrainConfig& config, int64_t vocab_size) {
  if (config.data.empty()) {
    throw Error("[train] data: not given; expected text, JSON lines or a directory that `deltanet tokenize` made");
  }
  const data::BatchOptions shuffled{.sequence_length = config.sequence_length,
                                    .seed = config.seed,
                                    .document_boundaries = config.document_boundaries,
                                    .mask_boundaries = config.document_boundaries};
  data::BatchOptions in_order = shuffled;
  in_order.shuffle = false;

  const std::string name = chosen_tokenizer(config, vocab_size);
  const std::unique_ptr<Tokenizer> tokenizer = load(name);
  const auto open = [&](const std::string& path) {
    StorePointer store = data::is_token_directory(path) ? open_shards(path, name, tokenizer.get())
                                                        : open_text(config, path, tokenizer.get());
    data::check_vocabulary(*store, vocab_size);
    return store;
  };
  const StorePointer store = open(config.data);
  if (!config.eval_data.empty()) {
    return {std::make_unique<CorpusBatches>(store, shuffled),
            std::make_unique<CorpusBatches>(open(config.eval_data), in_order)};
  }
  auto all = std::make_unique<CorpusBatches>(store, shuffled);
  if (config.eval_every == 0) return {std::move(all), nullptr};
  const int64_t held_out = std::min(config.eval_batches * config.batch_size, all->samples_per_epoch() / 10);
  if (held_out == 0) return {std::move(all), nullptr};
  // Samples overlap by the one token that is only predicted.
  const int64_t cut = (all->samples_per_epoch() - held_out) * config.sequence_length;
  return {std::make_unique<CorpusBatches>(data::part_of(store, 0, cut + 1), shuffled),
          std::make_unique<CorpusBatches>(data::part_of(store, cut, store->size()), in_order)};
}

}  // namespace deltanet
