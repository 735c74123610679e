#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/flat_map.h"

namespace deltanet::data {

// An entry of "added_tokens": a token that is found in the text before anything else happens to it.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  std::string spelling;  // how it reads in the text where it is looked for: content, normalized if `normalized`
  bool special = false;
  bool single_word = false;  // only where no letter or digit touches it
  bool lstrip = false;       // takes the blanks before it along
  bool rstrip = false;       // takes the blanks behind it along
  bool normalized = false;   // looked for in the normalized text, not in the original
};

// Finds a set of added tokens in texts.
class AddedTokenMatcher {
 public:
  void add(const AddedToken& token);  // of several with one spelling the first counts

  // Calls part(text, id) for the tokens and what lies between them, in order; id is empty for what is no token. Where
  // several tokens begin, the longest is taken.
  using Part = std::function<void(std::string_view, std::optional<int32_t>)>;
  void split(std::string_view text, const Part& part) const;

 private:
  struct Node {
    int32_t token = -1;  // in tokens_, of the text that leads here
  };
  struct Found {
    std::size_t size;
    int32_t token;
  };
  std::optional<Found> longest_at(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_{1};  // a tree of bytes; the first is its root
  FlatMap<int32_t> edges_;      // by (node, byte)
  bool starts_[256] = {};
};

}  // namespace deltanet::data
