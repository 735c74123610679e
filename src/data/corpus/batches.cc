#include "data/corpus/batches.h"

#include <limits>
#include <string>
#include <utility>

#include "data/corpus/permutation.h"
#include "data/synthetic/labelled.h"
#include "deltanet/error.h"

namespace deltanet::data {
namespace {

constexpr int64_t kLongest = std::numeric_limits<int32_t>::max();

void check(const char* name, int64_t given, int64_t lowest, int64_t highest) {
  if (given >= lowest && given <= highest) return;
  throw Error("[batches] " + std::string(name) + ": given " + std::to_string(given) + "; expected " +
              std::to_string(lowest) + " to " + std::to_string(highest));
}

}  // namespace

BatchPlan::BatchPlan(std::shared_ptr<const TokenStore> store, const BatchOptions& options)
    : store_(std::move(store)), options_(options) {
  check("sequence_length", options_.sequence_length, 1, kLongest);
  const int64_t size = store_->size(), needed = options_.sequence_length + 1;
  if (size == 0) throw Error("[batches] " + store_->name() + ": given no tokens; expected text to train on");
  if (size < needed) {
    throw Error("[batches] " + store_->name() + ": given " + std::to_string(size) + " tokens; expected at least " +
                std::to_string(needed) + ", one more than the sequence_length of " +
                std::to_string(options_.sequence_length));
  }
  samples_ = (size - 1) / options_.sequence_length;
}

int64_t BatchPlan::place(int64_t sample) const {
  check("sample", sample, 0, std::numeric_limits<int64_t>::max());
  const int64_t epoch = sample / samples_, index = sample % samples_;
  const int64_t k =
      options_.shuffle ? Permutation(samples_, options_.seed, static_cast<uint64_t>(epoch))(index) : index;
  return k * options_.sequence_length;
}

Batch BatchPlan::samples(int64_t begin, int64_t end) const {
  check("begin of samples", begin, 0, end);
  Batch batch;
  const auto count = static_cast<std::size_t>((end - begin) * options_.sequence_length);
  batch.ids.reserve(count);
  batch.targets.reserve(count);
  batch.offsets.push_back(0);
  std::vector<int32_t> tokens(static_cast<std::size_t>(options_.sequence_length) + 1);
  for (int64_t sample = begin; sample < end; ++sample) append(sample, batch, tokens);
  return batch;
}

void BatchPlan::append(int64_t sample, Batch& batch, std::vector<int32_t>& tokens) const {
  const int64_t T = options_.sequence_length, begin = place(sample), before = batch.offsets.back();
  store_->read(begin, begin + T + 1, tokens.data());
  batch.ids.insert(batch.ids.end(), tokens.begin(), tokens.end() - 1);
  batch.targets.insert(batch.targets.end(), tokens.begin() + 1, tokens.end());
  if (options_.document_boundaries || options_.mask_boundaries) {
    // A document may also start with the token that is only predicted.
    for (const int64_t start : store_->document_starts(begin + 1, begin + T + 1)) {
      const int64_t at = before + start - begin;
      if (options_.mask_boundaries) batch.targets[static_cast<std::size_t>(at - 1)] = kNoTarget;
      if (options_.document_boundaries && at < before + T) batch.offsets.push_back(at);
    }
  }
  batch.offsets.push_back(before + T);
}

}  // namespace deltanet::data
