#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "data/corpus/text_source.h"
#include "data/corpus/token_store.h"
#include "deltanet/tokenizer.h"

namespace deltanet::data {

// Takes the tokens of a corpus in the order of its text. A document may come in several parts, the last one empty.
using TokenSink = std::function<void(std::span<const int32_t> ids, bool ends_document)>;

// Tokenizes a corpus on `threads` threads (0: default_threads()), a block of text at a time on each. The sink gets the
// same calls whatever the number of threads, one at a time; after those of each block comes done(bytes), how many of
// source.bytes_total() are finished. An Error is that of the first place in the corpus that has one.
// Tokenizers that put a blank before every text (SentencePiece) also put it where a long document goes on in a new
// block.
void tokenize(TextSource& source, const Tokenizer& tokenizer, int threads, const TokenSink& sink,
              const std::function<void(int64_t bytes)>& done = {});

// The same into memory, for small corpora; larger ones are an Error that points to `deltanet tokenize`.
std::shared_ptr<const TokenStore> tokenize_to_memory(TextSource& source, const Tokenizer& tokenizer,
                                                     std::optional<int32_t> eos, int threads);

}  // namespace deltanet::data
