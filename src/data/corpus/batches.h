#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/corpus/token_store.h"

namespace deltanet::data {

struct BatchOptions {
  int64_t sequence_length = 0;  // T
  uint64_t seed = 0;
  bool shuffle = true;
  bool document_boundaries = false;  // a document begins with an empty state
  bool mask_boundaries = false;      // the first token of a document is not to be predicted
};

// N sequences one after the other, as LanguageModel takes them.
struct Batch {
  std::vector<int32_t> ids;      // [R]
  std::vector<int32_t> targets;  // [R]: the next token, or -100: none
  std::vector<int64_t> offsets;  // [N+1]: sequence n is [offsets[n], offsets[n+1])
};

// Which tokens a training run reads, and when. Sample k of an epoch is tokens [kT, kT + T] of the store: the last is
// only predicted, and read by the next sample. The n samples come in another order in every epoch. The numbers of
// samples go on over all epochs; what they stand for depends on the store and the options alone, so that a run that
// goes on elsewhere or with other processes needs nothing but the number.
class BatchPlan {
 public:
  // Throws Error for options out of range, and if the store has fewer than T + 1 tokens.
  BatchPlan(std::shared_ptr<const TokenStore> store, const BatchOptions& options);

  const BatchOptions& options() const { return options_; }
  int64_t samples_per_epoch() const { return samples_; }  // n

  // Where in the store sample i begins.
  int64_t place(int64_t sample) const;

  // Samples [begin, end), which may go over the end of an epoch.
  Batch samples(int64_t begin, int64_t end) const;

 private:
  void append(int64_t sample, Batch& batch, std::vector<int32_t>& tokens) const;

  std::shared_ptr<const TokenStore> store_;
  BatchOptions options_;
  int64_t samples_;
};

}  // namespace deltanet::data
