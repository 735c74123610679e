// Reading the "model" of a tokenizer.json.

#include <array>
#include <string>

#include "data/tokenizer/bpe.h"
#include "data/unicode/utf8.h"

namespace deltanet::data {
namespace {

std::string byte_token(int byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[static_cast<std::size_t>(byte / 16)], kDigits[static_cast<std::size_t>(byte % 16)],
          '>'};
}

void refuse_affix(const JsonField& model, std::string_view key) {
  const auto field = model.get(key);
  if (field && !field->string().empty()) field->refuse("none");
}

}  // namespace

Bpe::Bpe(const JsonField& model) {
  const auto type = model.get("type");  // files of the first years have none
  if (type && type->string() != "BPE") type->refuse("BPE");
  model.allow_only({"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                    "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (const auto dropout = model.get("dropout")) {
    if (!(dropout->number() == 0.0)) dropout->refuse("0 or null: ids must not be random");
  }
  refuse_affix(model, "continuing_subword_prefix");
  refuse_affix(model, "end_of_word_suffix");
  fuse_unknown_ = model.flag("fuse_unk", false);
  ignore_merges_ = model.flag("ignore_merges", false);

  read_vocab(model.at("vocab"));
  if (const auto token = model.get("unk_token")) {
    unknown_ = id_of(token->string());
    if (!unknown_) token->refuse("a token of the vocabulary");
  }
  if (model.flag("byte_fallback", false)) {
    for (int byte = 0; byte < 256; ++byte) byte_ids_.push_back(id_of(byte_token(byte)).value_or(-1));
  }
  read_merges(model.at("merges"));
  index_characters();
}

void Bpe::read_vocab(const JsonField& field) {
  const nlohmann::json& vocab = field.object();
  ids_.reserve(vocab.size());
  for (const auto& [token, value] : vocab.items()) {
    const auto id = static_cast<int32_t>(field.at(token).integer(0, kMaxId));
    if (id >= size()) tokens_.resize(static_cast<std::size_t>(id) + 1);
    std::string& place = tokens_[static_cast<std::size_t>(id)];
    if (!place.empty()) field.at(token).refuse("an id of its own; \"" + place + "\" has the same");
    place = token;
    ids_.emplace(token, id);
  }
}

void Bpe::read_merges(const JsonField& field) {
  const std::size_t count = field.size();
  merges_ = FlatMap<Merge>(count);
  int32_t rank = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const JsonField entry = field.at(i);
    std::array<std::string, 2> parts;
    if (entry.is_string()) {
      const std::string& text = entry.string();
      if (text.starts_with("#version")) continue;
      const std::size_t blank = text.find(' ');
      if (blank == std::string::npos || text.find(' ', blank + 1) != std::string::npos) {
        entry.refuse("two tokens with a blank between them");
      }
      parts = {text.substr(0, blank), text.substr(blank + 1)};
    } else {
      if (entry.size() != 2) entry.refuse("two tokens");
      parts = {entry.at(0).string(), entry.at(1).string()};
    }
    std::array<int32_t, 3> ids{};
    const std::array<std::string, 3> tokens = {parts[0], parts[1], parts[0] + parts[1]};
    for (std::size_t k = 0; k < 3; ++k) {
      const auto id = id_of(tokens[k]);
      if (!id) entry.refuse("\"" + tokens[k] + "\"", "a token of the vocabulary");
      ids[k] = *id;
    }
    merges_.set(static_cast<uint64_t>(ids[0]) << 32 | static_cast<uint32_t>(ids[1]), {rank++, ids[2]});
    char32_t left = 0;
    for (std::string_view rest = tokens[2]; !rest.empty();) {
      const Utf8Char right = first_char(rest);
      if (rest.size() < tokens[2].size()) inside_.set(static_cast<uint64_t>(left) << 32 | right.code, true);
      left = right.code;
      rest.remove_prefix(right.size);
    }
  }
}

void Bpe::index_characters() {
  for (const auto& [token, id] : ids_) {
    if (token.empty()) continue;
    const Utf8Char c = first_char(token);
    if (c.size == token.size()) characters_.set(c.code, id);
  }
}

}  // namespace deltanet::data
