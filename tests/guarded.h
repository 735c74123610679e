#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <vector>

namespace deltanet::test {

// Numbers that end where a page begins that nobody may touch: what reads or writes behind them ends the program.
template <class T>
class Guarded {
 public:
  explicit Guarded(const std::vector<T>& values) : count_(values.size()) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t used = (count_ * sizeof(T) + page - 1) / page * page;
    bytes_ = used + page;
    memory_ = static_cast<char*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    if (mprotect(memory_ + used, page, PROT_NONE) != 0) throw std::bad_alloc();
    data_ = reinterpret_cast<T*>(memory_ + used) - count_;
    std::copy(values.begin(), values.end(), data_);
  }
  explicit Guarded(int64_t count, T value = T()) : Guarded(std::vector<T>(static_cast<std::size_t>(count), value)) {}
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { munmap(memory_, bytes_); }

  T* data() { return data_; }
  std::vector<T> values() const { return {data_, data_ + count_}; }

 private:
  std::size_t count_, bytes_ = 0;
  char* memory_ = nullptr;
  T* data_ = nullptr;
};

}  // namespace deltanet::test
