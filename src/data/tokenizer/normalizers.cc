#include "data/tokenizer/normalizers.h"

#include <utf8proc.h>

#include <cstdlib>
#include <new>
#include <string_view>
#include <vector>

#include "data/tokenizer/replace.h"
#include "data/unicode/unicode.h"
#include "data/unicode/utf8.h"
#include "deltanet/error.h"

namespace deltanet::data {
namespace {

class NormalizerSequence final : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<const Normalizer>> steps) : steps_(std::move(steps)) {}
  void apply(NormalText& text) const override {
    for (const auto& step : steps_) step->apply(text);
  }

 private:
  std::vector<std::unique_ptr<const Normalizer>> steps_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(NormalText& text) const override {
    if (!text.text.empty()) text.text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class ReplaceNormalizer final : public Normalizer {
 public:
  explicit ReplaceNormalizer(Replace replace) : replace_(std::move(replace)) {}
  void apply(NormalText& text) const override {
    bool removed_start = false;
    text.text = replace_.apply(text.text, &removed_start);
    if (removed_start) text.at_start = false;
  }

 private:
  Replace replace_;
};

class UnicodeForm final : public Normalizer {
 public:
  explicit UnicodeForm(utf8proc_option_t options) : options_(options) {}
  void apply(NormalText& text) const override {
    if (is_ascii(text.text)) return;
    // Characters that the normal forms do not know end what is normalized: nothing is reordered or joined across them.
    std::string result;
    std::string_view rest = text.text;
    std::size_t at = 0;
    while (at < rest.size()) {
      const Utf8Char c = first_char(rest.substr(at));
      if (c.code < 0x80 || is_known_to_normal_forms(c.code)) {
        at += c.size;
        continue;
      }
      append_normal(rest.substr(0, at), result);
      result += rest.substr(at, c.size);
      rest.remove_prefix(at + c.size);
      at = 0;
    }
    append_normal(rest, result);
    text.text = std::move(result);
  }

 private:
  void append_normal(std::string_view text, std::string& result) const {
    if (text.empty()) return;
    utf8proc_uint8_t* normal = nullptr;
    const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                               static_cast<utf8proc_ssize_t>(text.size()), &normal, options_);
    if (size == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
    if (size < 0) throw Error(std::string("[encode] text: cannot be normalized; ") + utf8proc_errmsg(size));
    result.append(reinterpret_cast<const char*>(normal), static_cast<std::size_t>(size));
    std::free(normal);
  }

  utf8proc_option_t options_;
};

class Lowercase final : public Normalizer {
 public:
  void apply(NormalText& text) const override {
    std::string lower;
    lower.reserve(text.text.size());
    for (std::string_view rest = text.text; !rest.empty();) {
      const Utf8Char c = first_char(rest);
      rest.remove_prefix(c.size);
      if (c.code == 0x130) {
        lower += "i\xCC\x87";  // the one character whose small form is two: i and a dot above
      } else {
        append_utf8(lower, to_lower(c.code));
      }
    }
    text.text = std::move(lower);
  }
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(NormalText& text) const override {
    std::string_view rest = text.text;
    while (left_ && !rest.empty() && is_space(first_char(rest).code)) rest.remove_prefix(first_char(rest).size);
    if (rest.size() < text.text.size()) text.at_start = false;
    while (right_ && !rest.empty() && is_space(last_char(rest).code)) rest.remove_suffix(last_char(rest).size);
    text.text = std::string(rest);
  }

 private:
  bool left_, right_;
};

std::unique_ptr<const Normalizer> unicode_form(const JsonField& field, int options) {
  field.allow_only({});
  return std::make_unique<UnicodeForm>(static_cast<utf8proc_option_t>(options | UTF8PROC_STABLE));
}

}  // namespace

std::unique_ptr<const Normalizer> read_normalizer(const JsonField& field, int depth) {
  if (depth > kMaxDepth) field.refuse("sequences within sequences", "fewer than " + std::to_string(kMaxDepth));
  const std::string& type = field.at("type").string();
  if (type == "Sequence") {
    field.allow_only({"normalizers"});
    const JsonField list = field.at("normalizers");
    std::vector<std::unique_ptr<const Normalizer>> steps;
    for (std::size_t i = 0; i < list.size(); ++i) steps.push_back(read_normalizer(list.at(i), depth + 1));
    return std::make_unique<NormalizerSequence>(std::move(steps));
  }
  if (type == "Prepend") {
    field.allow_only({"prepend"});
    return std::make_unique<Prepend>(field.at("prepend").string());
  }
  if (type == "Replace") return std::make_unique<ReplaceNormalizer>(Replace(field));
  if (type == "NFC") return unicode_form(field, UTF8PROC_COMPOSE);
  if (type == "NFD") return unicode_form(field, UTF8PROC_DECOMPOSE);
  if (type == "NFKC") return unicode_form(field, UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
  if (type == "NFKD") return unicode_form(field, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  if (type == "Lowercase") {
    field.allow_only({});
    return std::make_unique<Lowercase>();
  }
  if (type == "Strip") {
    field.allow_only({"strip_left", "strip_right"});
    return std::make_unique<Strip>(field.flag("strip_left", true), field.flag("strip_right", true));
  }
  field.at("type").refuse("one of Sequence, Prepend, Replace, NFC, NFD, NFKC, NFKD, Lowercase, Strip");
}

}  // namespace deltanet::data
