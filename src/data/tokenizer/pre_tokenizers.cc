#include "data/tokenizer/pre_tokenizers.h"

#include <string>
#include <utility>
#include <vector>

#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/normalizers.h"
#include "data/tokenizer/replace.h"
#include "data/unicode/utf8.h"

namespace deltanet::data {
namespace {

// The pattern that ByteLevel splits by when it has no Split before it.
constexpr const char* kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

enum class Behavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

Behavior read_behavior(const JsonField& field) {
  const std::string& name = field.string();
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  field.refuse("one of Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous");
}

// Takes the parts of a piece, matches and what lies between them, and hands out pieces by the rule of `behavior`.
class Splitter {
 public:
  Splitter(const Piece& piece, Behavior behavior, const PieceSink& sink)
      : piece_(piece), behavior_(behavior), sink_(sink) {}

  void part(std::size_t begin, std::size_t end, bool is_match) {
    if (behavior_ == Behavior::kRemoved && is_match) return;
    if (waiting_ && joins(is_match)) {
      end_ = end;
    } else {
      emit();
      begin_ = begin;
      end_ = end;
    }
    waiting_ = true;
    previous_is_match_ = is_match;
  }

  void emit() {
    if (waiting_ && begin_ < end_) {
      sink_({piece_.text.substr(begin_, end_ - begin_), piece_.at_start && begin_ == 0});
    }
    waiting_ = false;
  }

 private:
  // Does the part that comes now belong to the waiting one?
  bool joins(bool is_match) const {
    switch (behavior_) {
      case Behavior::kContiguous:
        return is_match == previous_is_match_;
      case Behavior::kMergedWithPrevious:
        return is_match && !previous_is_match_;
      case Behavior::kMergedWithNext:
        return !is_match && previous_is_match_;
      default:
        return false;
    }
  }

  const Piece& piece_;
  Behavior behavior_;
  const PieceSink& sink_;
  bool waiting_ = false, previous_is_match_ = false;
  std::size_t begin_ = 0, end_ = 0;
};

void split_by(const Regex& pattern, bool invert, Behavior behavior, const Piece& piece, const PieceSink& sink) {
  Splitter splitter(piece, behavior, sink);
  pattern.for_each(piece.text, [&](std::size_t begin, std::size_t end, bool is_match) {
    splitter.part(begin, end, is_match != invert);
  });
  splitter.emit();
}

template <class Predicate>
void split_by_char(const Predicate& is_match, Behavior behavior, const Piece& piece, const PieceSink& sink) {
  Splitter splitter(piece, behavior, sink);
  std::size_t done = 0, at = 0;
  while (at < piece.text.size()) {
    const Utf8Char c = first_char(piece.text.substr(at));
    if (is_match(c.code)) {
      if (at > done) splitter.part(done, at, false);
      splitter.part(at, at + c.size, true);
      done = at + c.size;
    }
    at += c.size;
  }
  if (at > done) splitter.part(done, at, false);
  splitter.emit();
}

class Split final : public PreTokenizer {
 public:
  Split(Regex pattern, bool invert, Behavior behavior)
      : pattern_(std::move(pattern)), invert_(invert), behavior_(behavior) {}
  void split(const Piece& piece, const PieceSink& sink) const override {
    split_by(pattern_, invert_, behavior_, piece, sink);
  }

 private:
  Regex pattern_;
  bool invert_;
  Behavior behavior_;
};

class CharSplit final : public PreTokenizer {
 public:
  CharSplit(bool (*is_match)(char32_t), Behavior behavior) : is_match_(is_match), behavior_(behavior) {}
  void split(const Piece& piece, const PieceSink& sink) const override {
    split_by_char(is_match_, behavior_, piece, sink);
  }

 private:
  bool (*is_match_)(char32_t);
  Behavior behavior_;
};

// Runs of the characters of words, and runs of what are neither those nor blanks.
class Whitespace final : public PreTokenizer {
 public:
  void split(const Piece& piece, const PieceSink& sink) const override {
    enum class Kind { kBlank, kWord, kOther };
    Splitter splitter(piece, Behavior::kIsolated, sink);
    Kind kind = Kind::kBlank;
    std::size_t begin = 0, at = 0;
    const auto emit = [&] {
      if (kind != Kind::kBlank) splitter.part(begin, at, true);
    };
    while (at < piece.text.size()) {
      const Utf8Char c = first_char(piece.text.substr(at));
      const Kind next = is_word(c.code) ? Kind::kWord : is_space(c.code) ? Kind::kBlank : Kind::kOther;
      if (next != kind) {
        emit();
        kind = next;
        begin = at;
      }
      at += c.size;
    }
    emit();
    splitter.emit();
  }
};

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, bool use_regex) : add_prefix_space_(add_prefix_space) {
    if (use_regex) pattern_.emplace(kGpt2Pattern);
  }
  void split(const Piece& piece, const PieceSink& sink) const override {
    std::string prefixed, mapped;
    Piece whole = piece;
    if (add_prefix_space_ && !piece.text.starts_with(' ')) {
      prefixed = " " + std::string(piece.text);
      whole.text = prefixed;
    }
    const auto map = [&](const Piece& part) {
      mapped.clear();
      append_byte_level(mapped, part.text);
      sink({mapped, part.at_start});
    };
    if (pattern_) {
      split_by(*pattern_, false, Behavior::kIsolated, whole, map);
    } else {
      map(whole);
    }
  }

 private:
  bool add_prefix_space_;
  std::optional<Regex> pattern_;
};

enum class PrependScheme { kAlways, kFirst, kNever };

class Metaspace final : public PreTokenizer {
 public:
  Metaspace(char32_t replacement, PrependScheme scheme, bool split)
      : replacement_(replacement), scheme_(scheme), split_(split) {
    append_utf8(replacement_text_, replacement);
  }
  void split(const Piece& piece, const PieceSink& sink) const override {
    std::string text;
    for (const char c : piece.text) {
      if (c == ' ') {
        text += replacement_text_;
      } else {
        text += c;
      }
    }
    const bool wanted = scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && piece.at_start);
    if (wanted && !text.starts_with(replacement_text_)) text.insert(0, replacement_text_);
    const Piece replaced{text, piece.at_start};
    if (!split_) return sink(replaced);
    const auto is_replacement = [&](char32_t code) { return code == replacement_; };
    split_by_char(is_replacement, Behavior::kMergedWithNext, replaced, sink);
  }

 private:
  char32_t replacement_;
  std::string replacement_text_;
  PrependScheme scheme_;
  bool split_;
};

class PreTokenizerSequence final : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(std::vector<std::unique_ptr<const PreTokenizer>> steps) : steps_(std::move(steps)) {}
  void split(const Piece& piece, const PieceSink& sink) const override { split_from(0, piece, sink); }

 private:
  void split_from(std::size_t step, const Piece& piece, const PieceSink& sink) const {
    if (step == steps_.size()) return sink(piece);
    if (step + 1 == steps_.size()) return steps_[step]->split(piece, sink);
    steps_[step]->split(piece, [&](const Piece& part) { split_from(step + 1, part, sink); });
  }

  std::vector<std::unique_ptr<const PreTokenizer>> steps_;
};

std::unique_ptr<const PreTokenizer> read_metaspace(const JsonField& field) {
  field.allow_only({"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  PrependScheme scheme = PrependScheme::kAlways;
  if (const auto name = field.get("prepend_scheme")) {
    if (name->string() == "first") {
      scheme = PrependScheme::kFirst;
    } else if (name->string() == "never") {
      scheme = PrependScheme::kNever;
    } else if (name->string() != "always") {
      name->refuse("one of always, first, never");
    }
  }
  // Older files say add_prefix_space instead; false means never.
  if (!field.flag("add_prefix_space", true)) {
    if (field.get("prepend_scheme") && scheme != PrependScheme::kNever) {
      field.refuse("add_prefix_space false with another prepend_scheme", "never");
    }
    scheme = PrependScheme::kNever;
  }
  return std::make_unique<Metaspace>(field.at("replacement").character(), scheme, field.flag("split", true));
}

}  // namespace

std::unique_ptr<const PreTokenizer> read_pre_tokenizer(const JsonField& field, int depth) {
  if (depth > kMaxDepth) field.refuse("sequences within sequences", "fewer than " + std::to_string(kMaxDepth));
  const std::string& type = field.at("type").string();
  if (type == "Sequence") {
    field.allow_only({"pretokenizers"});
    const JsonField list = field.at("pretokenizers");
    std::vector<std::unique_ptr<const PreTokenizer>> steps;
    for (std::size_t i = 0; i < list.size(); ++i) steps.push_back(read_pre_tokenizer(list.at(i), depth + 1));
    return std::make_unique<PreTokenizerSequence>(std::move(steps));
  }
  if (type == "ByteLevel") {
    field.allow_only({"add_prefix_space", "trim_offsets", "use_regex"});
    return std::make_unique<ByteLevel>(field.flag("add_prefix_space", true), field.flag("use_regex", true));
  }
  if (type == "Split") {
    field.allow_only({"pattern", "behavior", "invert"});
    return std::make_unique<Split>(read_pattern(field.at("pattern")), field.flag("invert", false),
                                   read_behavior(field.at("behavior")));
  }
  if (type == "Metaspace") return read_metaspace(field);
  if (type == "Digits") {
    field.allow_only({"individual_digits"});
    const bool individual = field.flag("individual_digits", false);
    return std::make_unique<CharSplit>(is_numeric, individual ? Behavior::kIsolated : Behavior::kContiguous);
  }
  if (type == "Punctuation") {
    field.allow_only({"behavior"});
    const auto behavior = field.get("behavior");
    return std::make_unique<CharSplit>(is_punctuation, behavior ? read_behavior(*behavior) : Behavior::kIsolated);
  }
  if (type == "Whitespace") {
    field.allow_only({});
    return std::make_unique<Whitespace>();
  }
  if (type == "WhitespaceSplit") {
    field.allow_only({});
    return std::make_unique<CharSplit>(is_space, Behavior::kRemoved);
  }
  field.at("type").refuse(
      "one of Sequence, ByteLevel, Split, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit");
}

}  // namespace deltanet::data
