#include "model/generation/prefix_walk.h"

#include <algorithm>
#include <utility>

namespace deltanet {
namespace {

int64_t piece_length(const PrefixNode& node) { return node.end - node.begin; }

}  // namespace

void PrefixWalk::run() {
  std::vector<Item> items;
  for (const PrefixNode& root : tree_.roots) items.push_back({&root, 0});
  run({}, std::move(items));
}

// First what nobody goes on from, then the rest, whose last batch is the one with the most below: by then the states
// before it are gone, so that not even a long chain of prefixes holds more than a few of them.
void PrefixWalk::run(std::optional<State> before, std::vector<Item> items) {
  std::erase_if(items, [&](const Item& item) { return !wanted_(*item.node); });
  const auto inner =
      std::stable_partition(items.begin(), items.end(), [](const Item& item) { return item.node->children.empty(); });
  std::stable_sort(items.begin(), inner, [](const Item& a, const Item& b) {  // long ones first: a lack of memory shows
    return piece_length(*a.node) > piece_length(*b.node);
  });
  std::vector<std::pair<int64_t, Item>> by_size;
  for (auto item = inner; item != items.end(); ++item) by_size.emplace_back(item->node->tokens(), *item);
  std::stable_sort(by_size.begin(), by_size.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::transform(by_size.begin(), by_size.end(), inner, [](const auto& pair) { return pair.second; });

  const std::span<const Item> all(items);
  const auto leaves = static_cast<std::size_t>(inner - items.begin());
  std::vector<std::span<const Item>> todo = batches(all.first(leaves), before || keep_leaves_);
  for (const auto& batch : batches(all.subspan(leaves), true)) todo.push_back(batch);
  for (std::size_t i = 0; i < todo.size(); ++i) {
    const std::span<const Item> batch = todo[i];
    const bool goes_on = !batch.front().node->children.empty();
    const bool in_blocks = piece_length(*batch.front().node) > limits_.tokens;
    std::optional<State> state;
    if (before || goes_on || keep_leaves_ || in_blocks) {
      state = take(static_cast<int64_t>(batch.size()));
      if (before) {
        std::vector<int64_t> slots;
        for (const Item& item : batch) slots.push_back(item.slot);
        state->copy_sequences(*before, slots, limits_.threads);
      }
    }
    if (before && i + 1 == todo.size()) {
      spare_.push_back(std::move(*before));
      before.reset();
    }
    read(batch, state ? &*state : nullptr);
    if (!goes_on) {
      if (state) spare_.push_back(std::move(*state));
      continue;
    }
    std::vector<Item> below;
    for (std::size_t n = 0; n < batch.size(); ++n) {
      for (const PrefixNode& child : batch[n].node->children) below.push_back({&child, static_cast<int64_t>(n)});
    }
    run(std::move(state), std::move(below));
  }
}

State PrefixWalk::take(int64_t sequences) {
  if (spare_.empty()) return State(layout_, sequences);
  State state = std::move(spare_.back());
  spare_.pop_back();
  state.resize(sequences);
  return state;
}

void PrefixWalk::read(std::span<const Item> batch, State* state) {
  std::vector<Part> parts;
  std::vector<int32_t> ids;
  std::vector<int64_t> offsets;
  // Only a batch of one piece can be longer than a pass.
  const int64_t longest = batch.size() == 1 ? piece_length(*batch.front().node) : 1;
  for (int64_t done = 0; done < longest; done += limits_.tokens) {
    parts.clear();
    ids.clear();
    offsets.assign(1, 0);
    for (const Item& item : batch) {
      const PrefixNode& node = *item.node;
      const int64_t begin = node.begin + done;
      const int64_t end = batch.size() == 1 ? std::min(node.end, begin + limits_.tokens) : node.end;
      const std::span<const int32_t> tokens = sequences_[tree_.order[node.first]].subspan(begin, end - begin);
      parts.push_back({&node, begin, end});
      ids.insert(ids.end(), tokens.begin(), tokens.end());
      offsets.push_back(static_cast<int64_t>(ids.size()));
    }
    pass_(parts, ids, offsets, state);
  }
}

// Items in order, as many at a time as the limits allow, at least one.
std::vector<std::span<const PrefixWalk::Item>> PrefixWalk::batches(std::span<const Item> items,
                                                                   bool with_states) const {
  std::vector<std::span<const Item>> batches;
  for (std::size_t begin = 0, end = 0; begin < items.size(); begin = end) {
    int64_t tokens = 0;
    while (end < items.size() && (end == begin || (tokens + piece_length(*items[end].node) <= limits_.tokens &&
                                                   (!with_states || std::cmp_less(end - begin, limits_.sequences))))) {
      tokens += piece_length(*items[end++].node);
    }
    batches.push_back(items.subspan(begin, end - begin));
  }
  return batches;
}

}  // namespace deltanet
