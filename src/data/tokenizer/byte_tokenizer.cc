#include "data/unicode/utf8.h"
#include "deltanet/tokenizer.h"

namespace deltanet {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text, bool) const override {
    std::vector<int32_t> ids;
    ids.reserve(text.size());
    for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
    return ids;
  }
  std::string piece(int32_t id) const override {
    check_id("piece", id);
    return {static_cast<char>(id)};
  }
  std::optional<int32_t> id_of(std::string_view token) const override {
    if (token.size() != 1) return {};
    return static_cast<unsigned char>(token[0]);
  }
  int64_t vocab_size() const override { return 256; }
  std::optional<int32_t> bos() const override { return {}; }
  std::optional<int32_t> eos() const override { return {}; }
  std::unique_ptr<Decoding> start_decoding(bool) const override { return std::make_unique<ByteDecoding>(*this); }

 private:
  class ByteDecoding final : public Decoding {
   public:
    explicit ByteDecoding(const ByteTokenizer& tokenizer) : tokenizer_(tokenizer) {}
    void push(int32_t id, std::string& text) override {
      waiting_ += tokenizer_.piece(id);
      std::string_view rest = waiting_;
      while (!rest.empty()) {
        const data::Utf8Char c = data::first_char(rest);
        if (c.truncated) break;
        text += rest.substr(0, c.size);
        rest.remove_prefix(c.size);
      }
      waiting_ = std::string(rest);
    }
    void finish(std::string& text) override {
      text += waiting_;
      waiting_.clear();
    }

   private:
    const ByteTokenizer& tokenizer_;
    std::string waiting_;  // the beginning of a character
  };
};

}  // namespace

std::unique_ptr<Tokenizer> byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace deltanet
