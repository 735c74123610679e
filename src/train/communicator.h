#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace deltanet {

// What the processes of one training run say to each other. All of them call the same functions in the same order.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Begins to add an array up over all processes, in place; done after wait().
  virtual void start_sum(float* values, int64_t count) = 0;
  virtual void wait() = 0;

  virtual void sum(double* values, int64_t count) = 0;
  virtual double sum_on_machine(double value) = 0;        // over the processes that share this one's memory
  virtual void broadcast(void* data, int64_t bytes) = 0;  // from rank 0

  // Rank r owns values[begins[r], begins[r+1]). all_gather() gives every process the parts of all; gather() leaves in
  // `all` of rank 0 the parts that each has in `mine`.
  virtual void all_gather(float* values, const std::vector<int64_t>& begins) = 0;
  virtual void gather(const float* mine, float* all, const std::vector<int64_t>& begins) = 0;

  // Ends all processes because this one cannot go on, with a message; returns where there is no other.
  virtual void fail(const std::string& message) = 0;
};

// This process alone.
std::unique_ptr<Communicator> single_process();

}  // namespace deltanet
