// tokenizer.json: added tokens, normalizer, pre-tokenizer, model, post-processor and decoder put together.

#include <map>
#include <utility>

#include "base/interrupt.h"
#include "base/json.h"
#include "base/pool.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/decoders.h"
#include "data/tokenizer/json_field.h"
#include "data/tokenizer/loaders.h"
#include "data/tokenizer/normalizers.h"
#include "data/tokenizer/post_processor.h"
#include "data/tokenizer/pre_tokenizers.h"
#include "data/unicode/utf8.h"

namespace deltanet::data {
namespace {

class JsonTokenizer final : public Tokenizer {
 public:
  JsonTokenizer(const JsonField& root, const SpecialNames& names);

  std::vector<int32_t> encode(std::string_view text, bool add_special) const override;
  std::string piece(int32_t id) const override;
  std::optional<int32_t> id_of(std::string_view token) const override;
  int64_t vocab_size() const override { return size_; }
  std::optional<int32_t> bos() const override { return bos_; }
  std::optional<int32_t> eos() const override { return eos_; }
  std::unique_ptr<Decoding> start_decoding(bool skip_special) const override;

 private:
  class JsonDecoding;

  void read_added_tokens(const JsonField& list);
  std::optional<int32_t> find_special(const std::optional<std::string>& name,
                                      std::initializer_list<const char*> usual) const;
  NormalText normalize(std::string_view text, bool at_start) const;

  Bpe bpe_;
  std::unique_ptr<const Normalizer> normalizer_;
  std::unique_ptr<const PreTokenizer> pre_tokenizer_;
  std::vector<Template> templates_;
  std::vector<DecoderFactory> decoder_;
  std::map<int32_t, AddedToken> added_;
  std::map<std::string, int32_t, std::less<>> added_ids_;
  AddedTokenMatcher raw_tokens_, normalized_tokens_;
  int64_t size_ = 0;
  std::optional<int32_t> bos_, eos_;
  mutable Pool<Bpe::Scratch> pool_;
};

JsonTokenizer::JsonTokenizer(const JsonField& root, const SpecialNames& names) : bpe_(root.at("model")) {
  root.allow_only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                   "decoder", "model"});
  if (const auto field = root.get("normalizer")) normalizer_ = read_normalizer(*field);
  if (const auto field = root.get("pre_tokenizer")) pre_tokenizer_ = read_pre_tokenizer(*field);
  size_ = bpe_.size();
  if (const auto field = root.get("added_tokens")) read_added_tokens(*field);
  if (const auto field = root.get("post_processor")) templates_ = read_post_processor(*field, size_);
  decoder_ = read_decoder(root.get("decoder"));
  bos_ = find_special(names.bos, {"<s>", "<|begin_of_text|>", "<|startoftext|>", "<bos>", "<|endoftext|>"});
  eos_ = find_special(names.eos, {"</s>", "<|end_of_text|>", "<|endoftext|>", "<eos>"});
}

void JsonTokenizer::read_added_tokens(const JsonField& list) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonField field = list.at(i);
    field.allow_only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token;
    token.id = static_cast<int32_t>(field.at("id").integer(0, kMaxId));
    token.content = field.at("content").string();
    token.special = field.flag("special", false);
    token.single_word = field.flag("single_word", false);
    token.lstrip = field.flag("lstrip", false);
    token.rstrip = field.flag("rstrip", false);
    token.normalized = field.flag("normalized", !token.special);
    if (token.content.empty()) field.at("content").refuse("at least one character");
    const auto known = id_of(token.content);
    if (known && *known != token.id) field.at("id").refuse(std::to_string(*known) + ", its id elsewhere in the file");
    if (!known && token.id < size_ && !piece(token.id).empty()) {
      field.at("id").refuse("an id of its own; \"" + piece(token.id) + "\" has the same");
    }
    size_ = std::max<int64_t>(size_, token.id + 1);
    added_ids_.emplace(token.content, token.id);
    added_.emplace(token.id, token);  // of two equal ones the first counts
  }
  // Of tokens that read the same, special ones go first.
  for (const bool special : {true, false}) {
    for (auto& [id, token] : added_) {
      if (token.special != special) continue;
      token.spelling = token.normalized ? normalize(token.content, true).text : token.content;
      (token.normalized ? normalized_tokens_ : raw_tokens_).add(token);
    }
  }
}

std::optional<int32_t> JsonTokenizer::find_special(const std::optional<std::string>& name,
                                                   std::initializer_list<const char*> usual) const {
  if (name) return id_of(*name);
  for (const char* candidate : usual) {
    const auto found = added_ids_.find(candidate);
    if (found != added_ids_.end()) return found->second;
  }
  return {};
}

NormalText JsonTokenizer::normalize(std::string_view text, bool at_start) const {
  NormalText result{std::string(text), at_start};
  if (normalizer_) normalizer_->apply(result);
  return result;
}

std::vector<int32_t> JsonTokenizer::encode(std::string_view text, bool add_special) const {
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = replace_invalid_utf8(text);
    text = repaired;
  }
  std::vector<int32_t> ids;
  const Pool<Bpe::Scratch>::Loan scratch(pool_);
  const PieceSink to_model = [&](const Piece& piece) {
    check_interrupt();
    bpe_.encode(piece.text, *scratch, ids);
  };
  const auto split_words = [&](const Piece& piece) {
    if (pre_tokenizer_) {
      pre_tokenizer_->split(piece, to_model);
    } else {
      to_model(piece);
    }
  };
  raw_tokens_.split(text, [&](std::string_view part, std::optional<int32_t> token) {
    if (token) return ids.push_back(*token);
    const NormalText normal = normalize(part, part.data() == text.data());
    const std::string_view whole = normal.text;
    normalized_tokens_.split(whole, [&](std::string_view inner, std::optional<int32_t> inner_token) {
      if (inner_token) return ids.push_back(*inner_token);
      split_words({inner, normal.at_start && inner.data() == whole.data()});
    });
  });
  if (add_special) {
    for (const Template& pattern : templates_) ids = apply_template(pattern, ids);
  }
  return ids;
}

std::string JsonTokenizer::piece(int32_t id) const {
  check_id("piece", id);
  const auto added = added_.find(id);
  if (added != added_.end()) return added->second.content;
  return bpe_.token(id);
}

std::optional<int32_t> JsonTokenizer::id_of(std::string_view token) const {
  const auto added = added_ids_.find(token);
  if (added != added_ids_.end()) return added->second;
  return bpe_.id_of(token);
}

class JsonTokenizer::JsonDecoding final : public Decoding {
 public:
  JsonDecoding(const JsonTokenizer& tokenizer, bool skip_special) : tokenizer_(tokenizer), skip_special_(skip_special) {
    for (const DecoderFactory& make : tokenizer.decoder_) stages_.push_back(make());
    stages_.push_back(std::make_unique<Output>(&output_));
    for (std::size_t i = 0; i + 1 < stages_.size(); ++i) stages_[i]->set_next(stages_[i + 1].get());
  }

  void push(int32_t id, std::string& text) override {
    tokenizer_.check_id("decode", id);
    const auto found = tokenizer_.added_.find(id);
    const AddedToken* added = found == tokenizer_.added_.end() ? nullptr : &found->second;
    if (skip_special_ && added != nullptr && added->special) return;
    const std::string& token = added != nullptr ? added->spelling : tokenizer_.bpe_.token(id);
    if (token.empty()) return;
    stages_.front()->text(token);
    stages_.front()->end_token();
    hand_over(text);
  }

  void finish(std::string& text) override {
    stages_.front()->finish();
    hand_over(text);
  }

 private:
  class Output final : public DecodeStage {
   public:
    explicit Output(std::string* output) : output_(output) {}
    void text(std::string_view part) override { *output_ += part; }
    void end_token() override {}
    void finish() override {}

   private:
    std::string* output_;
  };

  void hand_over(std::string& text) {
    text += output_;
    output_.clear();
  }

  const JsonTokenizer& tokenizer_;
  bool skip_special_;
  std::string output_;
  std::vector<std::unique_ptr<DecodeStage>> stages_;
};

std::unique_ptr<Tokenizer::Decoding> JsonTokenizer::start_decoding(bool skip_special) const {
  return std::make_unique<JsonDecoding>(*this, skip_special);
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_from_json(std::string_view text, const std::string& name,
                                               const SpecialNames& names) {
  const nlohmann::json json = parse_json(text, "load_tokenizer " + name);
  return std::make_unique<JsonTokenizer>(JsonField(json, name, ""), names);
}

SpecialNames special_names_from_json(std::string_view text, const std::string& name) {
  const nlohmann::json json = parse_json(text, "load_tokenizer " + name);
  const JsonField root(json, name, "");
  // A name is a string or an object that describes an added token.
  const auto read = [&](std::string_view key) -> std::optional<std::string> {
    const auto field = root.get(key);
    if (!field) return {};
    return field->is_string() ? field->string() : field->at("content").string();
  };
  return {read("bos_token"), read("eos_token")};
}

}  // namespace deltanet::data
