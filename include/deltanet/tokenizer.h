#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Text to token ids and back. A tokenizer never changes after it was made: any number of threads may use one at once.

namespace deltanet {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids of any bytes. tokenizer.json is defined on Unicode text: invalid UTF-8 is read as U+FFFD, one for each maximal
  // invalid part, as Python's errors="replace" does. add_special puts the tokens around the text that the file asks for
  // (tokenizer.json: its post-processor; tokenizer.model: bos in front).
  virtual std::vector<int32_t> encode(std::string_view text, bool add_special = false) const = 0;

  // The text of ids; skip_special leaves out special and control tokens. Throws Error for an id outside the vocabulary.
  std::string decode(std::span<const int32_t> ids, bool skip_special = true) const;

  // A token as the vocabulary writes it: "Ġthe", "▁the", "<0x0A>". Empty for ids that the vocabulary leaves out.
  virtual std::string piece(int32_t id) const = 0;
  virtual std::optional<int32_t> id_of(std::string_view token) const = 0;

  virtual int64_t vocab_size() const = 0;  // largest id + 1
  virtual std::optional<int32_t> bos() const = 0;
  virtual std::optional<int32_t> eos() const = 0;

  // The state of one decoding, for StreamDecoder. Text is appended to `text` as soon as no later token can change it.
  class Decoding {
   public:
    virtual ~Decoding() = default;
    virtual void push(int32_t id, std::string& text) = 0;
    virtual void finish(std::string& text) = 0;
  };
  virtual std::unique_ptr<Decoding> start_decoding(bool skip_special) const = 0;

 protected:
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = default;
  Tokenizer& operator=(const Tokenizer&) = default;

  void check_id(std::string_view operation, int32_t id) const;  // throws Error when outside the vocabulary
};

// Loads a tokenizer.json (Hugging Face; BPE models) or a tokenizer.model (SentencePiece): a file of either kind, or a
// directory, where tokenizer.json goes first. The names of bos and eos of a tokenizer.json come from the
// tokenizer_config.json beside it; without one, from the usual names. Padding and truncation that a tokenizer.json may
// hold are left to the caller. Everything else in it is either done or refused with an Error.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);

// 256 ids, one for each byte; no special tokens. decode() gives back exactly the bytes that were encoded, valid UTF-8
// or not.
std::unique_ptr<Tokenizer> byte_tokenizer();

// decode() one token at a time. The pieces of text join to exactly what decode() gives for all ids, and each holds only
// whole UTF-8 characters (bytes of byte_tokenizer() that can never become one are handed on as they are). The tokenizer
// must outlive it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true);

  std::string push(int32_t id);  // the text that this token completes; may be empty
  std::string finish();          // the rest; afterwards the decoder is ready for a new text

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::unique_ptr<Tokenizer::Decoding> decoding_;
};

}  // namespace deltanet
