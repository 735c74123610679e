#pragma once

#include <memory>

#include "train/communicator.h"

namespace deltanet::cli {

// The processes that mpirun started together, where the build has MPI (processes_mpi.cc); else this process alone
// (processes_single.cc). MPI stays out of the library, so that its users need none.
std::unique_ptr<Communicator> make_communicator();

}  // namespace deltanet::cli
