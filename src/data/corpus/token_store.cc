#include "data/corpus/token_store.h"

#include <algorithm>
#include <utility>

#include "deltanet/error.h"

namespace deltanet::data {
namespace {

class MemoryStore final : public TokenStore {
 public:
  MemoryStore(std::vector<int32_t> ids, std::vector<int64_t> starts, std::string name)
      : ids_(std::move(ids)), starts_(std::move(starts)), name_(std::move(name)) {
    for (const int32_t id : ids_) largest_ = std::max(largest_, id);
  }

  int64_t size() const override { return static_cast<int64_t>(ids_.size()); }
  int32_t largest_id() const override { return largest_; }
  std::string name() const override { return name_; }

  void read(int64_t begin, int64_t end, int32_t* ids) const override {
    check_range(begin, end);
    std::copy(ids_.begin() + begin, ids_.begin() + end, ids);
  }
  std::vector<int64_t> document_starts(int64_t begin, int64_t end) const override {
    check_range(begin, end);
    return {std::lower_bound(starts_.begin(), starts_.end(), begin),
            std::lower_bound(starts_.begin(), starts_.end(), end)};
  }

 private:
  std::vector<int32_t> ids_;
  std::vector<int64_t> starts_;
  std::string name_;
  int32_t largest_ = -1;
};

class PartStore final : public TokenStore {
 public:
  PartStore(std::shared_ptr<const TokenStore> store, int64_t begin, int64_t end)
      : store_(std::move(store)), begin_(begin), size_(end - begin) {}

  int64_t size() const override { return size_; }
  int32_t largest_id() const override { return store_->largest_id(); }  // of the whole, which is at least as large
  std::string name() const override { return store_->name(); }
  std::string place(int64_t token) const override { return store_->place(begin_ + token); }

  void read(int64_t begin, int64_t end, int32_t* ids) const override {
    check_range(begin, end);
    store_->read(begin_ + begin, begin_ + end, ids);
  }
  std::vector<int64_t> document_starts(int64_t begin, int64_t end) const override {
    check_range(begin, end);
    std::vector<int64_t> starts = store_->document_starts(begin_ + begin, begin_ + end);
    for (int64_t& start : starts) start -= begin_;
    return starts;
  }

 private:
  std::shared_ptr<const TokenStore> store_;
  int64_t begin_, size_;
};

}  // namespace

void TokenStore::check_range(int64_t begin, int64_t end) const {
  if (begin >= 0 && begin <= end && end <= size()) return;
  throw Error("[read_tokens] " + name() + ": given tokens " + std::to_string(begin) + " to " + std::to_string(end) +
              "; expected a part of 0 to " + std::to_string(size()));
}

void check_vocabulary(const TokenStore& store, int64_t vocab_size) {
  if (store.largest_id() < vocab_size) return;
  std::vector<int32_t> ids(std::size_t{1} << 16);
  for (int64_t begin = 0; begin < store.size();) {
    const int64_t end = std::min(store.size(), begin + static_cast<int64_t>(ids.size()));
    store.read(begin, end, ids.data());
    for (int64_t i = begin; i < end; ++i) {
      const int32_t id = ids[static_cast<std::size_t>(i - begin)];
      if (id < vocab_size) continue;
      throw Error("[check_vocabulary] " + store.place(i) + ": given the id " + std::to_string(id) +
                  "; expected ids below " + std::to_string(vocab_size) + ", the size of the model's vocabulary");
    }
    begin = end;
  }
}

std::shared_ptr<const TokenStore> memory_store(std::vector<int32_t> ids, std::vector<int64_t> starts,
                                               std::string name) {
  return std::make_shared<MemoryStore>(std::move(ids), std::move(starts), std::move(name));
}

std::shared_ptr<const TokenStore> part_of(std::shared_ptr<const TokenStore> store, int64_t begin, int64_t end) {
  store->check_range(begin, end);
  return std::make_shared<PartStore>(std::move(store), begin, end);
}

}  // namespace deltanet::data
