#include "train/communicator.h"

#include <algorithm>

namespace deltanet {
namespace {

class SingleProcess final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void start_sum(float*, int64_t) override {}
  void wait() override {}
  void sum(double*, int64_t) override {}
  double sum_on_machine(double value) override { return value; }
  void broadcast(void*, int64_t) override {}
  void all_gather(float*, const std::vector<int64_t>&) override {}
  void gather(const float* mine, float* all, const std::vector<int64_t>& begins) override {
    std::copy_n(mine, begins.back(), all);
  }
  void fail(const std::string&) override {}
};

}  // namespace

std::unique_ptr<Communicator> single_process() { return std::make_unique<SingleProcess>(); }

}  // namespace deltanet
