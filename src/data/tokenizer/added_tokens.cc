#include "data/tokenizer/added_tokens.h"

#include "data/unicode/utf8.h"

namespace deltanet::data {
namespace {

uint64_t edge(std::size_t node, char byte) { return node << 8 | static_cast<unsigned char>(byte); }

bool touches_word(std::string_view before, std::string_view after) {
  return (!before.empty() && is_word(last_char(before).code)) || (!after.empty() && is_word(first_char(after).code));
}

}  // namespace

void AddedTokenMatcher::add(const AddedToken& token) {
  const std::string& spelling = token.spelling;
  if (spelling.empty()) return;  // a normalizer left nothing of it
  std::size_t node = 0;
  for (const char byte : spelling) {
    if (const int32_t* next = edges_.find(edge(node, byte))) {
      node = static_cast<std::size_t>(*next);
      continue;
    }
    edges_.set(edge(node, byte), static_cast<int32_t>(nodes_.size()));
    node = nodes_.size();
    nodes_.emplace_back();
  }
  starts_[static_cast<unsigned char>(spelling[0])] = true;
  if (nodes_[node].token >= 0) return;
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

std::optional<AddedTokenMatcher::Found> AddedTokenMatcher::longest_at(std::string_view text) const {
  std::optional<Found> found;
  std::size_t node = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int32_t* next = edges_.find(edge(node, text[i]));
    if (next == nullptr) break;
    node = static_cast<std::size_t>(*next);
    if (nodes_[node].token >= 0) found = Found{i + 1, nodes_[node].token};
  }
  return found;
}

void AddedTokenMatcher::split(std::string_view text, const Part& part) const {
  std::size_t done = 0, at = 0;
  while (!tokens_.empty() && at < text.size()) {
    if (!starts_[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    const std::optional<Found> found = longest_at(text.substr(at));
    if (!found) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + found->size;
    at = end;
    const AddedToken& token = tokens_[static_cast<std::size_t>(found->token)];
    if (token.single_word && touches_word(text.substr(0, begin), text.substr(end))) continue;
    if (token.lstrip) {
      while (begin > done && is_space(last_char(text.substr(0, begin)).code)) {
        begin -= last_char(text.substr(0, begin)).size;
      }
    }
    if (token.rstrip) {
      while (end < text.size() && is_space(first_char(text.substr(end)).code)) end += first_char(text.substr(end)).size;
    }
    if (begin > done) part(text.substr(done, begin - done), {});
    part(text.substr(begin, end - begin), token.id);
    done = end;
  }
  if (done < text.size()) part(text.substr(done), {});
}

}  // namespace deltanet::data
