// tokenizer.model: SentencePiece does the work; this file adds decoding token by token, and cuts texts into words
// where that changes nothing: most words were met before, and the library's time grows faster than the length.

#include <sentencepiece_processor.h>

#include <algorithm>
#include <utility>

#include "base/interrupt.h"
#include "base/pool.h"
#include "data/tokenizer/loaders.h"
#include "data/tokenizer/sentencepiece_spec.h"
#include "data/tokenizer/word_cache.h"
#include "data/unicode/utf8.h"
#include "deltanet/error.h"

namespace deltanet::data {
namespace {

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // ▁

bool is_plain(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

bool is_byte_piece(std::string_view piece) {  // "<0x0A>"
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
  return piece.size() == 6 && piece.starts_with("<0x") && is_digit(piece[3]) && is_digit(piece[4]) && piece[5] == '>';
}

// Does a blank stand behind something else in this piece?
bool has_inner_space(std::string_view piece) {
  while (piece.starts_with(kSpaceSymbol)) piece.remove_prefix(kSpaceSymbol.size());
  return piece.find(kSpaceSymbol) != std::string_view::npos || piece.find(' ') != std::string_view::npos;
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string_view model, const std::string& name) {
    const auto status = processor_.LoadFromSerializedProto(model);
    if (!status.ok()) {
      throw Error("[load_tokenizer] " + name + ": given " + std::to_string(model.size()) + " bytes (" +
                  status.ToString() + "); expected a SentencePiece model");
    }
    if (processor_.unk_id() >= 0) unknown_text_ = processor_.DecodeIds({processor_.unk_id()});
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      if (processor_.IsByte(id) && !is_byte_piece(processor_.IdToPiece(id))) {
        throw Error("[load_tokenizer] " + name + ": piece " + std::to_string(id) + ": given \"" +
                    processor_.IdToPiece(id) + "\" for a byte; expected <0x00> to <0xFF>");
      }
    }
    // No merge joins a word with the blank behind it, and the blank that every text gets in front stands for the one
    // that a cut takes away.
    const SentencePieceSpec spec = read_sentencepiece_spec(model);
    can_cut_ = spec.is_bpe && spec.add_dummy_prefix && !spec.treat_whitespace_as_suffix && !spec.has_own_rules;
    for (int id = 0; can_cut_ && id < processor_.GetPieceSize(); ++id) {
      can_cut_ = !has_inner_space(processor_.IdToPiece(id));
    }
  }

  std::vector<int32_t> encode(std::string_view text, bool add_special) const override {
    std::vector<int32_t> ids;
    const Pool<WordCache>::Loan cache(pool_);
    while (!text.empty()) {
      check_interrupt();
      const std::string_view word = text.substr(0, word_size(text));
      if (word.size() <= WordCache::kMaxWord) {
        const auto& known = (*cache).ids(word, [&](std::vector<int32_t>& fresh) { fresh = encode_word(word); });
        ids.insert(ids.end(), known.begin(), known.end());
      } else {
        const std::vector<int32_t> fresh = encode_word(word);
        ids.insert(ids.end(), fresh.begin(), fresh.end());
      }
      text.remove_prefix(std::min(text.size(), word.size() + 1));  // also the blank at the cut
    }
    if (add_special && bos()) ids.insert(ids.begin(), *bos());
    return ids;
  }

  std::string piece(int32_t id) const override {
    check_id("piece", id);
    return processor_.IdToPiece(id);
  }

  std::optional<int32_t> id_of(std::string_view token) const override {
    const int id = processor_.PieceToId(token);
    if (id == processor_.unk_id() && processor_.IdToPiece(id) != token) return {};
    return id;
  }

  int64_t vocab_size() const override { return processor_.GetPieceSize(); }
  std::optional<int32_t> bos() const override { return present(processor_.bos_id()); }
  std::optional<int32_t> eos() const override { return present(processor_.eos_id()); }
  std::unique_ptr<Decoding> start_decoding(bool skip_special) const override;

 private:
  class PieceDecoding;

  static std::optional<int32_t> present(int id) {
    if (id < 0) return {};
    return id;
  }

  std::vector<int32_t> encode_word(std::string_view word) const {
    std::vector<int> ids;
    const auto status = processor_.Encode(word, &ids);
    if (!status.ok()) throw Error("[encode] text: " + status.ToString());
    return ids;
  }

  // The bytes up to the first blank between two plain characters, or all.
  std::size_t word_size(std::string_view text) const {
    for (std::size_t at = 1; can_cut_ && at + 1 < text.size(); ++at) {
      if (text[at] == ' ' && is_plain(text[at - 1]) && is_plain(text[at + 1])) return at;
    }
    return text.size();
  }

  sentencepiece::SentencePieceProcessor processor_;
  bool can_cut_ = false;
  mutable Pool<WordCache> pool_;
  std::string unknown_text_;
};

// The model decides what happens to blanks at the start of a text, so the library decodes everything up to the first
// text that appears. From then on every piece stands for itself, and bytes make characters one by one.
class SentencePieceTokenizer::PieceDecoding final : public Decoding {
 public:
  PieceDecoding(const SentencePieceTokenizer& tokenizer, bool skip_special)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  void push(int32_t id, std::string& text) override {
    tokenizer_.check_id("decode", id);
    const auto& processor = tokenizer_.processor_;
    if (processor.IsByte(id)) {
      bytes_ += byte_of(processor.IdToPiece(id));
      take_characters(text);
      return;
    }
    flush(text);
    if (processor.IsControl(id)) {
      if (!skip_special_) text += processor.IdToPiece(id);
      if (!started_) start_.push_back(id);
    } else if (!started_) {
      start_.push_back(id);
      std::string decoded;
      const auto status = processor.Decode(start_, &decoded);
      if (!status.ok()) throw Error("[decode] ids: " + status.ToString());
      started_ = !decoded.empty();
      text += decoded;
    } else if (processor.IsUnknown(id)) {
      text += tokenizer_.unknown_text_;
    } else {
      append_piece(processor.IdToPiece(id), text);
    }
  }

  void finish(std::string& text) override { flush(text); }

 private:
  static char byte_of(std::string_view piece) {  // is_byte_piece
    const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'A' + 10; };
    return static_cast<char>(digit(piece[3]) * 16 + digit(piece[4]));
  }

  static void append_piece(std::string_view piece, std::string& text) {
    while (!piece.empty()) {
      if (piece.starts_with(kSpaceSymbol)) {
        text += ' ';
        piece.remove_prefix(kSpaceSymbol.size());
      } else {
        text += piece.front();
        piece.remove_prefix(1);
      }
    }
  }

  // Complete characters among the waiting bytes. An invalid byte is U+FFFD by itself.
  void take_characters(std::string& text) {
    std::string_view rest = bytes_;
    while (!rest.empty()) {
      const Utf8Char c = first_char(rest);
      if (c.truncated) break;
      text += c.valid ? rest.substr(0, c.size) : kReplacementText;
      rest.remove_prefix(c.valid ? c.size : 1);
      started_ = true;
    }
    bytes_ = std::string(rest);
  }

  void flush(std::string& text) {
    for (std::size_t i = 0; i < bytes_.size(); ++i) text += kReplacementText;
    if (!bytes_.empty()) started_ = true;
    bytes_.clear();
  }

  const SentencePieceTokenizer& tokenizer_;
  bool skip_special_;
  bool started_ = false;    // has any text appeared?
  std::vector<int> start_;  // the ids until then
  std::string bytes_;       // the beginning of a character
};

std::unique_ptr<Tokenizer::Decoding> SentencePieceTokenizer::start_decoding(bool skip_special) const {
  return std::make_unique<PieceDecoding>(*this, skip_special);
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_from_sentencepiece(std::string_view model, const std::string& name) {
  return std::make_unique<SentencePieceTokenizer>(model, name);
}

}  // namespace deltanet::data
