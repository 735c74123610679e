#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace deltanet {

// Sequences of tokens that begin alike, as a tree in which what they share stands once.
struct PrefixNode {
  int64_t first, last;  // the sequences that hold the piece are [first, last) of PrefixTree::order
  int64_t begin, end;   // the piece: tokens [begin, end) of each of them
  std::vector<PrefixNode> children = {};

  int64_t tokens() const;  // of the piece and of all below it
};

struct PrefixTree {
  std::vector<int64_t> order;  // the sequences, sorted: of those of a node, the ones that end with it come first
  std::vector<PrefixNode> roots;

  int64_t tokens() const;
};

// Only pieces of at least `least` tokens are shared. No sequence is empty.
PrefixTree prefix_tree(std::span<const std::span<const int32_t>> sequences, int64_t least);

}  // namespace deltanet
