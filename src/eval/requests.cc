#include "eval/requests.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/hash.h"
#include "deltanet/error.h"
#include "eval/text.h"
#include "nn/cross_entropy.h"

namespace deltanet::eval {
namespace {

using Ids = std::vector<int32_t>;

class Encoder {
 public:
  Encoder(const Example& example, const TaskModel& model, const ReadingRules& rules)
      : example_(example), model_(model), rules_(rules) {}

  Encoded encode() {
    std::visit([&](const auto& ask) { put(ask); }, example_.ask);
    for (const ScoreRequest& request : encoded_.requests) {
      add_key(request.ids);
      add_key(request.targets);
    }
    add_key(encoded_.prompt);
    return std::move(encoded_);
  }

 private:
  template <class T>
  void add_key(const std::vector<T>& values) {
    const auto size = static_cast<int64_t>(values.size());
    encoded_.key = hash_bytes(&size, sizeof size, encoded_.key);
    encoded_.key = hash_bytes(values.data(), values.size() * sizeof(T), encoded_.key);
  }
  void add_key(int64_t value) { encoded_.key = hash_bytes(&value, sizeof value, encoded_.key); }
  void add_key(const std::string& text) { add_key(std::vector<char>(text.begin(), text.end())); }

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error("[eval] " + (example_.place.empty() ? "example" : example_.place) + ": " + what);
  }

  int32_t prefix() const {
    if (rules_.prefix) return *rules_.prefix;
    refuse(
        "has no context, and the tokenizer has neither BOS nor EOS to stand for it; expected --prefix-token ID, such "
        "as 10 (the end of a line) for bytes");
  }

  // Blanks at the end of the context belong to the continuation, and the two are split where the context alone ends:
  // what the tokenizer makes of the border is the continuation's.
  std::pair<Ids, Ids> encode_pair(const std::string& context, const std::string& continuation) {
    Ids before, after;
    const std::string kept = strip_right(context);
    if (kept.empty()) {
      before = {prefix()};
      after = model_.tokenizer->encode(context + continuation, false);
      // A continuation that begins with the prefix has its context itself.
      if (after.size() > 1 && after.front() == before.front()) after.erase(after.begin());
    } else {
      if (kept != last_context_) {
        last_context_ = kept;
        last_ids_ = model_.encode(kept);
      }
      before = last_ids_;
      after = model_.encode(context + continuation);
      after.erase(after.begin(), after.begin() + std::min<std::ptrdiff_t>(std::ssize(before), std::ssize(after)));
    }
    if (after.empty()) {
      refuse("given a continuation, \"" + continuation.substr(0, 100) + "\", without a token of its own; expected one");
    }
    return {std::move(before), std::move(after)};
  }

  void add_pair(Ids context, const Ids& continuation) {
    const auto length = static_cast<int64_t>(continuation.size());
    if (length > rules_.max_length) {
      refuse("given a text to predict of " + std::to_string(length) + " tokens; expected at most " +
             std::to_string(rules_.max_length) + " (--max-length)");
    }
    // The last token is predicted, not read.
    const int64_t room = std::max<int64_t>(1, rules_.max_length + 1 - length);
    if (std::ssize(context) > room) {
      context.erase(context.begin(), context.end() - room);
      encoded_.cut = true;
    }
    ScoreRequest request{std::move(context), {}};
    request.targets.assign(request.ids.size() - 1, nn::kIgnoredLabel);
    request.ids.insert(request.ids.end(), continuation.begin(), continuation.end() - 1);
    request.targets.insert(request.targets.end(), continuation.begin(), continuation.end());
    encoded_.requests.push_back(std::move(request));
  }

  void put(const Choice& choice) {
    for (const Option& option : choice.options) {
      auto [context, continuation] = encode_pair(option.context, option.continuation);
      add_pair(std::move(context), continuation);
      add_key(option.length);
    }
    add_key(static_cast<int64_t>(choice.answer));
  }

  void put(const Cloze& cloze) {
    auto [context, continuation] = encode_pair(cloze.context, cloze.continuation);
    add_pair(std::move(context), continuation);
  }

  // Windows of so many tokens, each of which begins anew with one token of context; the last one is filled up with
  // what comes before.
  void put(const Document& document) {
    const Ids ids = model_.tokenizer->encode(document.text, false);
    const int64_t size = std::ssize(ids), length = rules_.window;
    for (int64_t predicted = 0; predicted < size;) {
      const int64_t end = std::min(predicted + length, size);
      const int64_t begin = predicted == 0 ? -1 : end - length - 1;  // -1: the prefix
      ScoreRequest request;
      if (begin < 0) request.ids.push_back(prefix());
      request.ids.insert(request.ids.end(), ids.begin() + std::max<int64_t>(0, begin), ids.begin() + end - 1);
      request.targets.assign(request.ids.size() - static_cast<std::size_t>(end - predicted), nn::kIgnoredLabel);
      request.targets.insert(request.targets.end(), ids.begin() + predicted, ids.begin() + end);
      encoded_.requests.push_back(std::move(request));
      predicted = end;
    }
    if (size == 0) refuse("given a text without a token; expected some text");
    add_key(document.words);
    add_key(document.bytes);
  }

  void put(const Question& question) {
    Ids ids = model_.encode(question.prompt);
    if (ids.empty()) ids.push_back(prefix());
    if (question.most_prompt_tokens > 0 && std::ssize(ids) > question.most_prompt_tokens) {
      ids.erase(ids.begin(), ids.end() - question.most_prompt_tokens);
      encoded_.cut = true;
    }
    encoded_.prompt = std::move(ids);
    for (const std::string& answer : question.answers) add_key(answer);
    for (const std::string& stop : question.stops) add_key(stop);
    add_key(question.max_tokens);
  }

  void put(const Labelled& labelled) {
    encoded_.requests.push_back({labelled.ids, labelled.targets});
    if (std::all_of(labelled.targets.begin(), labelled.targets.end(), [](int32_t id) { return id < 0; })) {
      refuse("given no label; expected at least one");
    }
  }

  const Example& example_;
  const TaskModel& model_;
  const ReadingRules& rules_;
  Encoded encoded_{.requests = {}, .prompt = {}, .cut = false, .key = kEmptyHash};
  std::string last_context_;
  Ids last_ids_;
};

}  // namespace

int64_t Encoded::tokens() const {
  int64_t tokens = 0;
  for (const ScoreRequest& request : requests) {
    tokens += std::count_if(request.targets.begin(), request.targets.end(), [](int32_t id) { return id >= 0; });
  }
  return tokens;
}

Encoded encode(const Example& example, const TaskModel& model, const ReadingRules& rules) {
  return Encoder(example, model, rules).encode();
}

}  // namespace deltanet::eval
