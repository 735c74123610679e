#pragma once

#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "train/communicator.h"

namespace deltanet::test {

// Several ranks of a training run as threads of one process. Sums are formed in the order of the ranks.
class Ranks {
 public:
  explicit Ranks(int size) : size_(size), shown_(static_cast<std::size_t>(size)), barrier_(size) {}

  // Calls body(communicator) for all ranks at once. An exception would leave the others waiting, so it ends the
  // program.
  void run(const std::function<void(Communicator&)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size_; ++rank) {
      threads.emplace_back([&, rank] {
        Rank one(*this, rank);
        try {
          body(one);
        } catch (const std::exception& error) {
          std::fprintf(stderr, "rank %d of %d: %s\n", rank, size_, error.what());
          std::abort();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  class Rank final : public Communicator {
   public:
    Rank(Ranks& all, int rank) : all_(all), rank_(rank) {}

    int rank() const override { return rank_; }
    int size() const override { return all_.size_; }
    void start_sum(float* values, int64_t count) override { started_.emplace_back(values, count); }
    void wait() override {
      for (const auto& [values, count] : started_) add_up(values, count);
      started_.clear();
    }
    void sum(double* values, int64_t count) override { add_up(values, count); }
    double sum_on_machine(double value) override {
      add_up(&value, 1);
      return value;
    }
    void broadcast(void* data, int64_t bytes) override {
      exchange(data, [&] {
        if (rank_ > 0) std::memcpy(data, all_.shown_[0], static_cast<std::size_t>(bytes));
      });
    }
    void all_gather(float* values, const std::vector<int64_t>& begins) override {
      exchange(values, [&] {
        for (int other = 0; other < size(); ++other) {
          const auto* from = static_cast<const float*>(all_.shown_[other]);
          if (other != rank_) std::copy(from + begins[other], from + begins[other + 1], values + begins[other]);
        }
      });
    }
    void gather(const float* mine, float* all, const std::vector<int64_t>& begins) override {
      exchange(const_cast<float*>(mine), [&] {
        for (int other = 0; rank_ == 0 && other < size(); ++other) {
          const auto* from = static_cast<const float*>(all_.shown_[other]);
          std::copy(from, from + begins[other + 1] - begins[other], all + begins[other]);
        }
      });
    }
    void fail(const std::string& message) override {
      std::fprintf(stderr, "%s\n", message.c_str());
      std::abort();
    }

   private:
    // Shows every rank what the others have, until all have looked.
    void exchange(void* mine, const std::function<void()>& look) {
      all_.shown_[rank_] = mine;
      all_.barrier_.arrive_and_wait();
      look();
      all_.barrier_.arrive_and_wait();
    }

    template <class T>
    void add_up(T* values, int64_t count) {
      std::vector<T> total(static_cast<std::size_t>(count));
      exchange(values, [&] {
        for (const void* one : all_.shown_) {
          for (int64_t i = 0; i < count; ++i) total[i] += static_cast<const T*>(one)[i];
        }
      });
      std::copy(total.begin(), total.end(), values);
    }

    Ranks& all_;
    int rank_;
    std::vector<std::pair<float*, int64_t>> started_;
  };

  int size_;
  std::vector<void*> shown_;  // of each rank
  std::barrier<> barrier_;
};

}  // namespace deltanet::test
