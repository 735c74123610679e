#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace deltanet::data {

// A tokenizer.json made for a text: byte-level byte pairs, of which the most frequent one of the text is joined again
// and again until there are `vocab_size` tokens, 256 of them bytes, or no pair occurs twice. The same text gives the
// same file. Meant for texts of some megabytes.
std::string train_bpe(std::string_view text, int64_t vocab_size);

}  // namespace deltanet::data
