#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "data/tokenizer/json_field.h"

// The pre-tokenizers of tokenizer.json: they cut text into the pieces that the model never joins.

namespace deltanet::data {

struct Piece {
  std::string_view text;  // valid UTF-8, not empty; borrowed for the time of the call
  bool at_start;          // of the input
};
using PieceSink = std::function<void(const Piece&)>;

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void split(const Piece& piece, const PieceSink& sink) const = 0;
};

std::unique_ptr<const PreTokenizer> read_pre_tokenizer(const JsonField& field, int depth = 0);

}  // namespace deltanet::data
