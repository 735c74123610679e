#include "data/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "data/utf8.h"
#include "deltanet/error.h"

namespace deltanet::data {
namespace {

constexpr uint32_t kMatchLimit = 10'000'000;   // steps of backtracking
constexpr uint32_t kHeapLimit = 64 << 10;      // KiB
constexpr std::size_t kJitStack = 1 << 20;     // bytes at most
constexpr std::size_t kMaxPattern = 64 << 10;  // bytes

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

  Scratch() {
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
    pcre2_set_match_limit(context.get(), kMatchLimit);
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

}  // namespace

struct Regex::Code {
  std::unique_ptr<pcre2_code, Free> compiled;

  Code(std::string_view pattern, uint32_t options) {
    const auto context = owned(pcre2_compile_context_create(nullptr));
    pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
    pcre2_set_max_pattern_length(context.get(), kMaxPattern);
    int error = 0;
    PCRE2_SIZE offset = 0;
    compiled.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options | PCRE2_UTF,
                                 &error, &offset, context.get()));
    if (!compiled) {
      throw Error("[regex] pattern: given \"" + std::string(pattern) + "\", which has an error at byte " +
                  std::to_string(offset) + ": " + message_of(error) + "; expected a regular expression");
    }
    // Where there is no just-in-time compiler the pattern is interpreted, with the same results.
    pcre2_jit_compile(compiled.get(), PCRE2_JIT_COMPLETE);
  }
};

Regex::Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}

Regex::Regex(std::string_view pattern)
    // In Oniguruma's syntax ^ and $ always mean the ends of a line.
    : code_(std::make_shared<const Code>(to_pcre2(pattern), PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C)) {}

Regex Regex::literal(const std::string& text) { return Regex(std::make_shared<const Code>(text, PCRE2_LITERAL)); }

std::optional<Regex::Match> Regex::find(std::string_view text, std::size_t from) const {
  Scratch& scratch = thread_scratch();
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const auto match = [&](uint32_t options) {
    return pcre2_match(code_->compiled.get(), subject, text.size(), from, options | PCRE2_NO_UTF_CHECK,
                       scratch.data.get(), scratch.context.get());
  };
  int result = match(0);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = match(PCRE2_NO_JIT);  // its stack is on the heap and may be larger
  if (result == PCRE2_ERROR_NOMATCH) return {};
  if (result < 0) throw Error("[regex] match: failed on this text; " + message_of(result));
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(scratch.data.get());
  // \K may put the begin behind the end or before `from`; no splitting rule has a meaning for that.
  if (ends[0] > ends[1] || ends[0] < from) throw Error("[regex] match: given a pattern that moves its own begin");
  return Match{ends[0], ends[1]};
}

std::size_t Regex::next_char(std::string_view text, std::size_t from) {
  return from < text.size() ? from + first_char(text.substr(from)).size : from + 1;
}

}  // namespace deltanet::data
