#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/json_field.h"

// The decoders of tokenizer.json, as a chain of stages that text flows through token by token. decode() and the
// streaming decoder run the same chain, which is why they agree.

namespace deltanet::data {

// One stage at work. Text arrives in parts of whole characters; after the last part of a token comes end_token(), after
// the last token finish(). A stage hands on as early as it can.
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  virtual void text(std::string_view part) = 0;
  virtual void end_token() = 0;
  virtual void finish() { next_->finish(); }

  void set_next(DecodeStage* next) { next_ = next; }

 protected:
  DecodeStage* next_ = nullptr;
};

// A decoder of a file makes its stage at the start of every decoding.
using DecoderFactory = std::function<std::unique_ptr<DecodeStage>()>;

// The stages that the field describes, in order; without a field, tokens are joined by blanks.
std::vector<DecoderFactory> read_decoder(const std::optional<JsonField>& field);

}  // namespace deltanet::data
