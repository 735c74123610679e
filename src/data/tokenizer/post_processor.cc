#include "data/tokenizer/post_processor.h"

#include <string>

#include "data/tokenizer/normalizers.h"

namespace deltanet::data {
namespace {

// Only the template for one text is read; the one for pairs is for other kinds of models.
Template read_template(const JsonField& field, int64_t vocab_size) {
  field.allow_only({"single", "pair", "special_tokens"});
  const JsonField single = field.at("single");
  const auto specials = field.get("special_tokens");
  Template result;
  for (std::size_t i = 0; i < single.size(); ++i) {
    const JsonField entry = single.at(i);
    entry.allow_only({"Sequence", "SpecialToken"});
    if (const auto sequence = entry.get("Sequence")) {
      if (sequence->at("id").string() != "A") sequence->at("id").refuse("A: a single text has no other");
      result.emplace_back();
      continue;
    }
    const JsonField name = entry.at("SpecialToken").at("id");
    const auto special = specials ? specials->get(name.string()) : std::nullopt;
    if (!special) name.refuse("a token that special_tokens explains");
    const JsonField ids = special->at("ids");
    for (std::size_t k = 0; k < ids.size(); ++k) {
      result.emplace_back(static_cast<int32_t>(ids.at(k).integer(0, vocab_size - 1)));
    }
  }
  return result;
}

}  // namespace

std::vector<Template> read_post_processor(const JsonField& field, int64_t vocab_size, int depth) {
  if (depth > kMaxDepth) field.refuse("sequences within sequences", "fewer than " + std::to_string(kMaxDepth));
  const std::string& type = field.at("type").string();
  if (type == "TemplateProcessing") return {read_template(field, vocab_size)};
  if (type == "ByteLevel") {  // moves the offsets of tokens, which we do not report
    field.allow_only({"add_prefix_space", "trim_offsets", "use_regex"});
    return {};
  }
  if (type == "Sequence") {
    field.allow_only({"processors"});
    const JsonField list = field.at("processors");
    std::vector<Template> result;
    for (std::size_t i = 0; i < list.size(); ++i) {
      for (Template& inner : read_post_processor(list.at(i), vocab_size, depth + 1)) result.push_back(std::move(inner));
    }
    return result;
  }
  field.at("type").refuse("one of Sequence, TemplateProcessing, ByteLevel");
}

std::vector<int32_t> apply_template(const Template& pattern, const std::vector<int32_t>& text) {
  std::vector<int32_t> result;
  result.reserve(text.size() + pattern.size());
  for (const std::optional<int32_t>& item : pattern) {
    if (item) {
      result.push_back(*item);
    } else {
      result.insert(result.end(), text.begin(), text.end());
    }
  }
  return result;
}

}  // namespace deltanet::data
