#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "model/generation/prefix_tree.h"
#include "model/state.h"

namespace deltanet {

// Reads a tree of prefixes in passes of many pieces side by side. What follows a piece goes on from copies of the state
// behind it; a state lives only as long as something still needs it, so that the memory depends on the limits and not
// on the length of the sequences.
class PrefixWalk {
 public:
  struct Limits {
    int64_t tokens;     // of a pass; a longer piece goes through in blocks
    int64_t sequences;  // whose states are carried side by side
    int threads;        // that copy them
  };

  // Tokens [begin, end) of the sequences of a node; it is the whole piece unless that is long.
  struct Part {
    const PrefixNode* node;
    int64_t begin, end;
    bool ends_node() const { return end == node->end; }
  };

  // Has to put the tokens of the parts through the model, after `state`, which then holds what is behind them; null:
  // they begin at their first token and nobody goes on after them.
  using Pass = std::function<void(std::span<const Part> parts, std::span<const int32_t> ids,
                                  std::span<const int64_t> offsets, State* state)>;

  // Nodes for which `wanted` is false are left out with all below. keep_leaves: a state is wanted behind the last
  // pieces, too.
  PrefixWalk(const Layout& layout, std::span<const std::span<const int32_t>> sequences, const PrefixTree& tree,
             Limits limits, bool keep_leaves, std::function<bool(const PrefixNode&)> wanted, Pass pass)
      : layout_(layout),
        sequences_(sequences),
        tree_(tree),
        limits_(limits),
        keep_leaves_(keep_leaves),
        wanted_(std::move(wanted)),
        pass_(std::move(pass)) {}

  void run();

 private:
  struct Item {
    const PrefixNode* node;
    int64_t slot;  // of the state before it
  };
  void run(std::optional<State> before, std::vector<Item> items);
  State take(int64_t sequences);
  void read(std::span<const Item> batch, State* state);
  std::vector<std::span<const Item>> batches(std::span<const Item> items, bool with_states) const;

  const Layout& layout_;
  std::span<const std::span<const int32_t>> sequences_;
  const PrefixTree& tree_;
  Limits limits_;
  bool keep_leaves_;
  std::function<bool(const PrefixNode&)> wanted_;
  Pass pass_;
  std::vector<State> spare_;  // fresh memory of this size would cost as much as copying
};

}  // namespace deltanet
