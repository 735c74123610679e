#pragma once

#include <string_view>

namespace deltanet::data {

// What a SentencePiece model says about itself that the library has no function for.
struct SentencePieceSpec {
  bool is_bpe = false;
  bool has_own_rules = false;               // of normalization, besides those that come with the library
  bool add_dummy_prefix = true;             // a blank is put in front of every text
  bool treat_whitespace_as_suffix = false;  // blanks belong to the word before them
};

// Reads the fields from a serialized ModelProto; damaged parts are skipped, since the library judges the model.
SentencePieceSpec read_sentencepiece_spec(std::string_view model);

}  // namespace deltanet::data
