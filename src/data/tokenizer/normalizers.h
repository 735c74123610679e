#pragma once

#include <memory>
#include <string>

#include "data/tokenizer/json_field.h"

// The normalizers of tokenizer.json: text in, text out, before it is split.

namespace deltanet::data {

inline constexpr int kMaxDepth = 16;  // of sequences within sequences

struct NormalText {
  std::string text;  // valid UTF-8
  bool at_start;     // does its first character come from the first one of the input?
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(NormalText& text) const = 0;
};

std::unique_ptr<const Normalizer> read_normalizer(const JsonField& field, int depth = 0);

}  // namespace deltanet::data
