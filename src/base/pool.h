#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace deltanet {

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

}  // namespace deltanet
