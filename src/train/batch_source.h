#pragma once

#include <cstdint>

#include "data/corpus/batches.h"

namespace deltanet {

using data::Batch;

// An endless list of samples, epoch after epoch, each in an order of its own. A sample depends on its number only, so a
// run goes on exactly where it stopped, and any split over processes sees the same samples.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Replaces `out` by the samples [first, first + count).
  virtual void fill(int64_t first, int64_t count, Batch& out) const = 0;
  virtual int64_t samples_per_epoch() const = 0;
};

}  // namespace deltanet
