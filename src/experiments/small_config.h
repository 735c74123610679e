#pragma once

#include <cstdint>
#include <string>

#include "model/config/config.h"

namespace deltanet {

struct SmallSizes {
  int64_t d_model, layers, heads, intermediate, vocab_size;
};

// A row's language model in a size of one's own, with heads of d_model / heads and tied embeddings, without tokens that
// begin or end a text. `operation` opens the error about sizes that are impossible.
Config small_config(const std::string& row, const SmallSizes& sizes, const std::string& operation);

}  // namespace deltanet
