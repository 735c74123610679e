#include "train/text_batches.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/file.h"
#include "base/rng.h"
#include "deltanet/error.h"

namespace deltanet {
namespace {

constexpr int64_t kLargestText = int64_t{1} << 32;  // bytes; a larger corpus belongs into shards

std::unique_ptr<Tokenizer> tokenizer_of(const TrainConfig& config) {
  return config.tokenizer == "bytes" ? byte_tokenizer() : load_tokenizer(config.tokenizer);
}

TextBatches::Tokens read_tokens(const std::string& path, const Tokenizer& tokenizer, int64_t vocab_size) {
  auto tokens = std::make_shared<std::vector<int32_t>>(tokenizer.encode(read_file(path, kLargestText)));
  if (tokens->empty()) throw Error("[train] data: " + path + " is empty; expected text");
  const auto largest = std::max_element(tokens->begin(), tokens->end());
  if (*largest >= vocab_size) {
    throw Error("[train] data: " + path + " has token " + std::to_string(*largest) + " at position " +
                std::to_string(largest - tokens->begin()) + "; expected ids below the vocabulary of the model, " +
                std::to_string(vocab_size) + " (set vocab_size)");
  }
  return tokens;
}

}  // namespace

int64_t shuffled(int64_t i, int64_t n, uint64_t seed, uint64_t epoch) {
  // A Feistel network permutes the numbers of 2 * half bits; walking on until one below n comes permutes [0, n).
  const int bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(n - 1)));
  const int half = std::max(1, (bits + 1) / 2);
  const uint32_t mask = static_cast<uint32_t>((uint64_t{1} << half) - 1);
  const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
  auto x = static_cast<uint64_t>(i);
  do {
    uint32_t left = low(x >> half) & mask, right = low(x) & mask;
    for (uint32_t round = 0; round < 6; ++round) {
      const auto block = Rng::philox({right, round, low(epoch), low(epoch >> 32)}, {low(seed), low(seed >> 32)});
      left = std::exchange(right, left ^ (block[0] & mask));
    }
    x = uint64_t{left} << half | right;
  } while (x >= static_cast<uint64_t>(n));
  return static_cast<int64_t>(x);
}

TextBatches::TextBatches(Tokens tokens, int64_t begin, int64_t end, const SampleOptions& options)
    : tokens_(std::move(tokens)), begin_(begin), options_(options) {
  samples_ = (end - begin - 1) / options.sequence_length;  // the last target of a sample is the first id of the next
  if (samples_ < 1) {
    throw Error("[train] data: has " + std::to_string(end - begin) + " tokens; expected at least " +
                std::to_string(options.sequence_length + 1) + ", one more than sequence_length");
  }
}

void TextBatches::fill(int64_t first, int64_t count, Batch& out) const {
  const int64_t T = options_.sequence_length;
  out.ids.clear();
  out.targets.clear();
  out.offsets.assign(1, 0);
  for (int64_t i = first; i < first + count; ++i) {
    const int64_t in_epoch = i % samples_, epoch = i / samples_;
    const int64_t sample =
        options_.shuffle ? shuffled(in_epoch, samples_, options_.seed, static_cast<uint64_t>(epoch)) : in_epoch;
    const auto from = tokens_->begin() + begin_ + sample * T;
    out.ids.insert(out.ids.end(), from, from + T);
    out.targets.insert(out.targets.end(), from + 1, from + T + 1);
    const auto size = static_cast<int64_t>(out.ids.size());
    for (int64_t t = 1; options_.boundary >= 0 && t < T; ++t) {
      if (from[t - 1] == options_.boundary) out.offsets.push_back(size - T + t);
    }
    out.offsets.push_back(size);
  }
}

TrainingData load_training_data(const TrainConfig& config, int64_t vocab_size) {
  if (config.data.empty()) throw Error("[train] data: not given; expected the path of a text file");
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(config);
  SampleOptions options{.sequence_length = config.sequence_length, .seed = config.seed};
  if (config.document_boundaries) {
    if (!tokenizer->eos()) {
      throw Error("[train] document_boundaries: the tokenizer has no end-of-text token to separate documents by");
    }
    options.boundary = *tokenizer->eos();
  }
  SampleOptions in_order = options;
  in_order.shuffle = false;

  const TextBatches::Tokens tokens = read_tokens(config.data, *tokenizer, vocab_size);
  const auto size = static_cast<int64_t>(tokens->size());
  if (!config.eval_data.empty()) {
    const TextBatches::Tokens others = read_tokens(config.eval_data, *tokenizer, vocab_size);
    return {std::make_unique<TextBatches>(tokens, 0, size, options),
            std::make_unique<TextBatches>(others, 0, static_cast<int64_t>(others->size()), in_order)};
  }
  const int64_t samples = TextBatches(tokens, 0, size, options).samples_per_epoch();
  const int64_t wanted = config.eval_batches * config.batch_size;
  const int64_t held_out = std::min(wanted, samples / 10);
  if (held_out == 0) return {std::make_unique<TextBatches>(tokens, 0, size, options), nullptr};
  const int64_t end = (samples - held_out) * config.sequence_length + 1;
  return {std::make_unique<TextBatches>(tokens, 0, end, options),
          std::make_unique<TextBatches>(tokens, end - 1, size, in_order)};
}

}  // namespace deltanet
