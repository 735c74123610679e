#include "data/regex/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "data/regex/regex_dialect.h"
#include "data/unicode/unicode.h"
#include "data/unicode/utf8.h"
#include "deltanet/error.h"

namespace deltanet::data {
namespace {

constexpr std::size_t kMatchLimit = 10'000'000;  // steps of backtracking ...
constexpr std::size_t kMatchLimitOfStep = 16;    // ... and as many more for each character of the text
constexpr uint32_t kHeapLimit = 64 << 10;        // KiB
constexpr std::size_t kJitStack = 1 << 20;       // bytes at most
constexpr std::size_t kKeptBuffer = 4 << 20;     // bytes

struct Free {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
};

template <class T>
std::unique_ptr<T, Free> owned(T* p) {
  if (p == nullptr) throw std::bad_alloc();
  return std::unique_ptr<T, Free>(p);
}

// What matching needs besides the pattern; one for each thread, so that patterns can be shared.
struct Scratch {
  std::unique_ptr<pcre2_jit_stack, Free> stack = owned(pcre2_jit_stack_create(32 << 10, kJitStack, nullptr));
  std::unique_ptr<pcre2_match_context, Free> context = owned(pcre2_match_context_create(nullptr));
  std::unique_ptr<pcre2_match_data, Free> data = owned(pcre2_match_data_create(1, nullptr));
  Pool<std::string> buffers;  // searches nest

  Scratch() {
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
    pcre2_set_heap_limit(context.get(), kHeapLimit);
  }
};

Scratch& thread_scratch() {
  thread_local Scratch scratch;
  return scratch;
}

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

// The pattern as PCRE2 reads it, with sets of classes in place of sets of characters.
std::string with_classes(const RegexParts& regex, const CharClasses& classes) {
  std::string pattern;
  for (const RegexParts::Part& part : regex.parts) {
    pattern += part.syntax;
    if (part.set < 0) continue;
    const std::vector<uint8_t>& members = classes.members(static_cast<std::size_t>(part.set));
    if (members.empty()) {
      pattern += R"([^\x00-\xff])";
      continue;
    }
    pattern += '[';
    for (const uint8_t member : members) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      pattern += {'\\', 'x', kDigits[member / 16], kDigits[member % 16]};
    }
    pattern += ']';
  }
  return pattern;
}

}  // namespace

struct Regex::Code {
  CharClasses classes;
  std::unique_ptr<pcre2_code, Free> compiled;

  Code(std::string_view given, const RegexParts& parts) : classes(parts.sets) {
    const std::string pattern = with_classes(parts, classes);
    int error = 0;
    PCRE2_SIZE offset = 0;
    compiled.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_DOTALL, &error,
                                 &offset, nullptr));
    if (!compiled) {
      throw Error("[regex] pattern: given \"" + std::string(given) + "\", which has an error: " + message_of(error) +
                  "; expected a regular expression");
    }
    // Where there is no just-in-time compiler the pattern is interpreted, with the same results.
    pcre2_jit_compile(compiled.get(), PCRE2_JIT_COMPLETE);
  }
};

Regex::Regex(std::string_view pattern) : code_(std::make_shared<const Code>(pattern, parse_oniguruma(pattern))) {}

Regex Regex::literal(const std::string& text) {
  if (text.empty()) return Regex(std::string_view());  // matches everywhere
  Regex regex;
  regex.literal_ = text;
  return regex;
}

Regex::Search::Search(const Regex& regex, std::string_view text)
    : regex_(regex), text_(text), classes_(thread_scratch().buffers), size_(text.size()) {
  if (!regex_.code_) return;
  const CharClasses& classes = regex_.code_->classes;
  (*classes_).resize(text.size());
  char* const begin = (*classes_).data();
  char* out = begin;
  for (std::size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      *out++ = static_cast<char>(classes.of(static_cast<unsigned char>(text[at++])));
      continue;
    }
    const Utf8Char c = first_char(text.substr(at));
    *out++ = static_cast<char>(classes.of(c.code));
    at += c.size;
  }
  size_ = static_cast<std::size_t>(out - begin);
  steps_are_bytes_ = size_ == text.size();
}

Regex::Search::~Search() {
  if ((*classes_).capacity() > kKeptBuffer) *classes_ = std::string();
}

std::size_t Regex::Search::byte_of(std::size_t step) {
  if (steps_are_bytes_) return step;
  for (; step_ < step; ++step_) byte_ += first_char(text_.substr(byte_)).size;
  return byte_;
}

std::optional<Regex::Match> Regex::Search::find(std::size_t from) const {
  if (!regex_.code_) {
    const std::size_t begin = text_.find(regex_.literal_, from);
    if (begin == std::string_view::npos) return {};
    return Match{begin, begin + regex_.literal_.size()};
  }
  Scratch& scratch = thread_scratch();
  const std::size_t limit = std::min<std::size_t>(kMatchLimit + kMatchLimitOfStep * size_, UINT32_MAX);
  pcre2_set_match_limit(scratch.context.get(), static_cast<uint32_t>(limit));
  const auto match = [&](uint32_t options) {
    return pcre2_match(regex_.code_->compiled.get(), reinterpret_cast<PCRE2_SPTR>((*classes_).data()), size_, from,
                       options, scratch.data.get(), scratch.context.get());
  };
  int result = match(0);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = match(PCRE2_NO_JIT);  // its stack is on the heap and may be larger
  if (result == PCRE2_ERROR_NOMATCH) return {};
  if (result < 0) throw Error("[regex] match: failed on this text; " + message_of(result));
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(scratch.data.get());
  return Match{ends[0], ends[1]};
}

}  // namespace deltanet::data
