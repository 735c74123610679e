#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "deltanet/tokenizer.h"

namespace deltanet::data {

// Names that stand beside a tokenizer.json.
struct SpecialNames {
  std::optional<std::string> bos, eos;
};

// The contents of a tokenizer.json. `name` is what errors call it.
std::unique_ptr<Tokenizer> tokenizer_from_json(std::string_view text, const std::string& name,
                                               const SpecialNames& names = {});

// The contents of a tokenizer_config.json.
SpecialNames special_names_from_json(std::string_view text, const std::string& name);

// The contents of a SentencePiece model.
std::unique_ptr<Tokenizer> tokenizer_from_sentencepiece(std::string_view model, const std::string& name);

}  // namespace deltanet::data
