#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deltanet::data {

// The ids of words that were met before. Bounded: of words with one hash the last stays. For one thread at a time.
class WordCache {
 public:
  static constexpr std::size_t kMaxWord = 64;  // bytes; longer words are rarely met again

  WordCache() : words_(kSlots) {}

  // The ids of a word of at most kMaxWord bytes; unless they are known, encode(ids) appends them to an empty vector.
  template <class Encode>
  const std::vector<int32_t>& ids(std::string_view word, const Encode& encode) {
    Word& known = words_[std::hash<std::string_view>()(word) % kSlots];
    if (known.text != word) {
      known.text.clear();  // in case of an exception, the slot is empty
      known.ids.clear();
      encode(known.ids);
      known.text = word;
    }
    return known.ids;
  }

 private:
  static constexpr std::size_t kSlots = 1 << 15;
  struct Word {
    std::string text;
    std::vector<int32_t> ids;
  };
  std::vector<Word> words_;
};

// Hands out objects for the time of a call and keeps them for the next one, so that caches stay warm while every thread
// has its own.
template <class T>
class Pool {
 public:
  class Loan {
   public:
    explicit Loan(Pool& pool) : pool_(pool), object_(pool.take()) {}
    ~Loan() { pool_.give_back(std::move(object_)); }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    T& operator*() const { return *object_; }

   private:
    Pool& pool_;
    std::unique_ptr<T> object_;
  };

 private:
  std::unique_ptr<T> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      free_.reserve(++made_);  // so that giving back never allocates
      return std::make_unique<T>();
    }
    auto object = std::move(free_.back());
    free_.pop_back();
    return object;
  }
  void give_back(std::unique_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(object));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> free_;
  std::size_t made_ = 0;
};

}  // namespace deltanet::data
