#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace deltanet {

// A hash map from integers below 2^63 that is filled once and then only read, often and in random order.
template <class Value>
class FlatMap {
 public:
  explicit FlatMap(std::size_t expected = 0) { slots_.resize(std::bit_ceil(2 * expected + 2)); }

  void set(uint64_t key, Value value) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[index_of(key)];
    if (slot.key == kEmpty) ++count_;
    slot = {key, value};
  }

  const Value* find(uint64_t key) const {
    const Slot& slot = slots_[index_of(key)];
    return slot.key == key ? &slot.value : nullptr;
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    Value value{};
  };

  std::size_t index_of(uint64_t key) const {
    const std::size_t mask = slots_.size() - 1;
    const uint64_t mixed = key * 0x9E3779B97F4A7C15u;  // 2^64 over the golden ratio; its high bits depend on all of key
    std::size_t at = (mixed >> 32) & mask;
    while (slots_[at].key != kEmpty && slots_[at].key != key) at = (at + 1) & mask;
    return at;
  }

  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key != kEmpty) slots_[index_of(slot.key)] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t count_ = 0;
};

}  // namespace deltanet
