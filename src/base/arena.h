#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace deltanet {

// Scratch memory in 64-byte aligned pieces. Pieces stay valid until reset(); a reset keeps the memory for the next use,
// so a loop that takes the same pieces again allocates nothing.
class Arena {
 public:
  float* take(int64_t count);  // contents are unspecified
  float* take_zeros(int64_t count);
  void reset();
  void release();  // gives the memory back

  int64_t capacity() const { return capacity_; }  // floats

  // Fills every piece with NaN when it is taken. Tests use it to find reads of scratch that was never written.
  static void set_poison(bool on);

 private:
  struct Free {
    std::align_val_t alignment{64};
    void operator()(float* p) const;
  };
  struct Block {
    std::unique_ptr<float[], Free> data;
    int64_t size = 0;
  };
  void add_block(int64_t count);

  std::vector<Block> blocks_;
  int64_t used_ = 0;  // of the last block
  int64_t capacity_ = 0;
};

// The arena of the calling thread, empty again, for pieces that live as long as one task. Tasks do not nest. A thread
// keeps its memory between tasks, but not more than 256 MiB of it.
class TaskArena {
 public:
  TaskArena();
  ~TaskArena();
  TaskArena(const TaskArena&) = delete;
  TaskArena& operator=(const TaskArena&) = delete;

  Arena& get() const { return arena_; }

 private:
  Arena& arena_;
};

}  // namespace deltanet
