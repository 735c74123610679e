#include "model/generation/prefix_tree.h"

#include <algorithm>
#include <numeric>

namespace deltanet {
namespace {

class Builder {
 public:
  Builder(std::span<const std::span<const int32_t>> sequences, int64_t least, const std::vector<int64_t>& order)
      : sequences_(sequences), least_(least), order_(order) {}

  // The nodes of the sequences [first, last), whose tokens before `begin` are read above.
  void build(int64_t first, int64_t last, int64_t begin, std::vector<PrefixNode>& to) const {
    const std::span<const int32_t> front = at(first), back = at(last - 1);
    // Sorted, they share what the outer ones share.
    const auto parted = std::mismatch(front.begin() + begin, front.end(), back.begin() + begin, back.end()).first;
    const int64_t common = parted - front.begin();
    if (common == size(first) && common == size(last - 1)) {  // all are the same
      to.push_back({first, last, begin, common});
      return;
    }
    std::vector<PrefixNode>* below = &to;
    int64_t ended = first;
    while (size(ended) == common) ++ended;
    if (common - begin >= least_) {
      to.push_back({first, last, begin, common});
      below = &to.back().children;
      begin = common;
    } else if (ended > first) {
      to.push_back({first, ended, begin, common});
    }
    for (int64_t i = ended, next = i; i < last; i = next) {
      while (next < last && at(next)[common] == at(i)[common]) ++next;
      build(i, next, begin, *below);
    }
  }

 private:
  std::span<const int32_t> at(int64_t place) const { return sequences_[order_[place]]; }
  int64_t size(int64_t place) const { return static_cast<int64_t>(at(place).size()); }

  std::span<const std::span<const int32_t>> sequences_;
  int64_t least_;
  const std::vector<int64_t>& order_;
};

int64_t tokens_of(const std::vector<PrefixNode>& nodes) {
  return std::accumulate(nodes.begin(), nodes.end(), int64_t{0},
                         [](int64_t sum, const PrefixNode& node) { return sum + node.tokens(); });
}

}  // namespace

int64_t PrefixNode::tokens() const { return end - begin + tokens_of(children); }
int64_t PrefixTree::tokens() const { return tokens_of(roots); }

PrefixTree prefix_tree(std::span<const std::span<const int32_t>> sequences, int64_t least) {
  PrefixTree tree;
  tree.order.resize(sequences.size());
  std::iota(tree.order.begin(), tree.order.end(), int64_t{0});
  std::stable_sort(tree.order.begin(), tree.order.end(), [&](int64_t a, int64_t b) {
    return std::lexicographical_compare(sequences[a].begin(), sequences[a].end(), sequences[b].begin(),
                                        sequences[b].end());
  });
  if (!sequences.empty()) {
    Builder(sequences, least, tree.order).build(0, static_cast<int64_t>(sequences.size()), 0, tree.roots);
  }
  return tree;
}

}  // namespace deltanet
