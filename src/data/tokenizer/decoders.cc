#include "data/tokenizer/decoders.h"

#include <charconv>
#include <cstdint>
#include <optional>
#include <utility>

#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/normalizers.h"
#include "data/tokenizer/replace.h"
#include "data/unicode/utf8.h"

namespace deltanet::data {
namespace {

// Joins all tokens to one.
class Fuse final : public DecodeStage {
 public:
  void text(std::string_view part) override { next_->text(part); }
  void end_token() override {}
  void finish() override {
    next_->end_token();
    next_->finish();
  }
};

// What a file without a decoder gets.
class JoinByBlanks final : public DecodeStage {
 public:
  void text(std::string_view part) override {
    if (std::exchange(between_, false)) next_->text(" ");
    next_->text(part);
  }
  void end_token() override { between_ = true; }

 private:
  bool between_ = false;
};

// A stage that needs a whole token at once.
class WholeToken : public DecodeStage {
 public:
  void text(std::string_view part) final { token_ += part; }
  void end_token() final {
    token(token_);
    token_.clear();
  }

 protected:
  virtual void token(std::string_view token) = 0;

 private:
  std::string token_;
};

class ByteLevelDecoder final : public WholeToken {
 public:
  void finish() override {
    if (!bytes_.empty()) next_->text(kReplacementText);
    bytes_.clear();
    next_->end_token();  // all tokens become one
    next_->finish();
  }

 private:
  void token(std::string_view token) override {
    if (const auto bytes = from_byte_level(token)) {
      bytes_ += *bytes;
    } else {
      bytes_ += token;
    }
    std::string text;
    std::string_view rest = bytes_;
    while (!rest.empty()) {
      const Utf8Char c = first_char(rest);
      if (c.truncated) break;
      text += c.valid ? rest.substr(0, c.size) : kReplacementText;
      rest.remove_prefix(c.size);
    }
    bytes_ = std::string(rest);
    if (!text.empty()) next_->text(text);
  }

  std::string bytes_;  // the beginning of a character
};

// Tokens like <0x0A> are bytes. A run of them is text if it is valid as a whole; otherwise each byte is U+FFFD. So a
// run waits for its end.
class ByteFallback final : public WholeToken {
 public:
  void finish() override {
    flush();
    next_->finish();
  }

 private:
  void token(std::string_view token) override {
    if (const auto byte = byte_of(token)) {
      run_ += *byte;
      return;
    }
    flush();
    next_->text(token);
    next_->end_token();
  }

  static std::optional<char> byte_of(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return {};
    uint8_t byte = 0;
    const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
    if (error != std::errc() || end != token.data() + 5) return {};
    return static_cast<char>(byte);
  }

  void flush() {
    if (run_.empty()) return;
    if (is_valid_utf8(run_)) {
      next_->text(run_);
      next_->end_token();
    } else {
      for (std::size_t i = 0; i < run_.size(); ++i) {
        next_->text(kReplacementText);
        next_->end_token();
      }
    }
    run_.clear();
  }

  std::string run_;
};

class MetaspaceDecoder final : public DecodeStage {
 public:
  MetaspaceDecoder(char32_t replacement, bool drop_first) : replacement_(replacement), first_(drop_first) {}
  void text(std::string_view part) override {
    std::string text;
    while (!part.empty()) {
      const Utf8Char c = first_char(part);
      if (c.code != replacement_) {
        text += part.substr(0, c.size);
      } else if (!first_) {
        text += ' ';
      }
      part.remove_prefix(c.size);
    }
    next_->text(text);
  }
  void end_token() override {
    first_ = false;
    next_->end_token();
  }

 private:
  char32_t replacement_;
  bool first_;  // the blanks of the first token were put in front by the encoder
};

class ReplaceDecoder final : public WholeToken {
 public:
  explicit ReplaceDecoder(const Replace& replace) : replace_(replace) {}

 private:
  void token(std::string_view token) override {
    next_->text(replace_.apply(token));
    next_->end_token();
  }

  const Replace& replace_;
};

// Takes up to `start` and `stop` of one character away from the ends of each token.
class StripDecoder final : public DecodeStage {
 public:
  StripDecoder(char32_t content, int64_t start, int64_t stop) : content_(content), start_(start), stop_(stop) {
    begin_token();
  }
  void text(std::string_view part) override {
    std::string text;
    while (!part.empty()) {
      const Utf8Char c = first_char(part);
      const std::string_view bytes = part.substr(0, c.size);
      part.remove_prefix(c.size);
      if (c.code == content_ && to_strip_ > 0) {
        --to_strip_;
        continue;
      }
      to_strip_ = 0;
      if (c.code == content_ && stop_ > 0) {
        if (held_ == stop_) {
          text += bytes;  // only the last ones are taken away
        } else {
          ++held_;
        }
        continue;
      }
      release(text);
      text += bytes;
    }
    next_->text(text);
  }
  void end_token() override {
    begin_token();
    next_->end_token();
  }

 private:
  void begin_token() {
    to_strip_ = start_;
    held_ = 0;
  }
  void release(std::string& text) {
    for (; held_ > 0; --held_) append_utf8(text, content_);
  }

  char32_t content_;
  int64_t start_, stop_;
  int64_t to_strip_ = 0;
  int64_t held_ = 0;  // characters at the end of the text so far that would be taken away
};

void read_into(const JsonField& field, int depth, std::vector<DecoderFactory>& stages) {
  if (depth > kMaxDepth) field.refuse("sequences within sequences", "fewer than " + std::to_string(kMaxDepth));
  const std::string& type = field.at("type").string();
  if (type == "Sequence") {
    field.allow_only({"decoders"});
    const JsonField list = field.at("decoders");
    for (std::size_t i = 0; i < list.size(); ++i) read_into(list.at(i), depth + 1, stages);
  } else if (type == "ByteLevel") {
    field.allow_only({"add_prefix_space", "trim_offsets", "use_regex"});
    stages.emplace_back([] { return std::make_unique<ByteLevelDecoder>(); });
  } else if (type == "ByteFallback") {
    field.allow_only({});
    stages.emplace_back([] { return std::make_unique<ByteFallback>(); });
  } else if (type == "Fuse") {
    field.allow_only({});
    stages.emplace_back([] { return std::make_unique<Fuse>(); });
  } else if (type == "Metaspace") {
    field.allow_only({"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
    const char32_t replacement = field.at("replacement").character();
    const auto scheme = field.get("prepend_scheme");
    const bool never = scheme ? scheme->string() == "never" : !field.flag("add_prefix_space", true);
    stages.emplace_back([=] { return std::make_unique<MetaspaceDecoder>(replacement, !never); });
  } else if (type == "Replace") {
    const auto replace = std::make_shared<const Replace>(field);
    stages.emplace_back([replace] { return std::make_unique<ReplaceDecoder>(*replace); });
  } else if (type == "Strip") {
    field.allow_only({"content", "start", "stop"});
    const char32_t content = field.at("content").character();
    const int64_t start = field.at("start").integer(0, INT32_MAX), stop = field.at("stop").integer(0, INT32_MAX);
    stages.emplace_back([=] { return std::make_unique<StripDecoder>(content, start, stop); });
  } else {
    field.at("type").refuse("one of Sequence, ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip");
  }
}

}  // namespace

std::vector<DecoderFactory> read_decoder(const std::optional<JsonField>& field) {
  std::vector<DecoderFactory> stages;
  if (field) {
    read_into(*field, 0, stages);
  } else {
    stages.emplace_back([] { return std::make_unique<JoinByBlanks>(); });
  }
  return stages;
}

}  // namespace deltanet::data
