#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "cli/processes.h"
#include "cli/terminal.h"
#include "deltanet/error.h"

namespace deltanet::cli {
namespace {

constexpr int64_t kPiece = int64_t{1} << 28;  // values in one message: MPI counts with int

// Calls body(begin, count) for pieces of [begin, end).
template <class Body>
void in_pieces(int64_t begin, int64_t end, const Body& body) {
  for (; begin < end; begin += kPiece) body(begin, static_cast<int>(std::min(kPiece, end - begin)));
}

// Errors of MPI end all processes (its default handler), so results are not looked at.
class MpiProcesses final : public Communicator {
 public:
  MpiProcesses() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  ~MpiProcesses() override { MPI_Finalize(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void start_sum(float* values, int64_t count) override {
    in_pieces(0, count, [&](int64_t begin, int n) {
      MPI_Iallreduce(MPI_IN_PLACE, values + begin, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &pending_.emplace_back());
    });
    // Messages move on only inside calls: this one pushes those of the layers before.
    int done = 0;
    MPI_Testall(static_cast<int>(pending_.size()), pending_.data(), &done, MPI_STATUSES_IGNORE);
  }
  void wait() override {
    MPI_Waitall(static_cast<int>(pending_.size()), pending_.data(), MPI_STATUSES_IGNORE);
    pending_.clear();
  }

  void sum(double* values, int64_t count) override {
    MPI_Allreduce(MPI_IN_PLACE, values, static_cast<int>(count), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  }
  double sum_on_machine(double value) override {
    MPI_Comm machine;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &machine);
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_SUM, machine);
    MPI_Comm_free(&machine);
    return value;
  }
  void broadcast(void* data, int64_t bytes) override {
    MPI_Bcast(data, static_cast<int>(bytes), MPI_BYTE, 0, MPI_COMM_WORLD);
  }

  void all_gather(float* values, const std::vector<int64_t>& begins) override {
    for (int owner = 0; owner < size_; ++owner) {
      in_pieces(begins[static_cast<std::size_t>(owner)], begins[static_cast<std::size_t>(owner) + 1],
                [&](int64_t begin, int n) {
                  MPI_Ibcast(values + begin, n, MPI_FLOAT, owner, MPI_COMM_WORLD, &pending_.emplace_back());
                });
    }
    wait();
  }
  void gather(const float* mine, float* all, const std::vector<int64_t>& begins) override {
    const int64_t own = begins[static_cast<std::size_t>(rank_)];
    if (rank_ == 0) std::copy_n(mine, begins[1], all);
    for (int owner = 1; owner < size_; ++owner) {
      in_pieces(begins[static_cast<std::size_t>(owner)], begins[static_cast<std::size_t>(owner) + 1],
                [&](int64_t begin, int n) {
                  if (rank_ == owner) MPI_Send(mine + (begin - own), n, MPI_FLOAT, 0, 0, MPI_COMM_WORLD);
                  if (rank_ == 0) MPI_Recv(all + begin, n, MPI_FLOAT, owner, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                });
    }
  }

  void fail(const std::string& message) override {
    if (size_ == 1) return;
    say(stderr, fmt::format("deltanet: process {} of {}: {}\n", rank_, size_, message));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }

 private:
  int rank_ = 0, size_ = 1;
  std::vector<MPI_Request> pending_;
};

// Did a launcher start this process? Without one MPI is left alone: starting it takes time and may fail.
bool was_launched() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"}) {
    if (std::getenv(name)) return true;
  }
  return false;
}

}  // namespace

std::unique_ptr<Communicator> make_communicator() {
  if (!was_launched()) return single_process();
  int level = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS) {
    throw Error("[train] MPI cannot be started");
  }
  return std::make_unique<MpiProcesses>();
}

}  // namespace deltanet::cli
