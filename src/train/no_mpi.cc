// Builds without MPI.

#include "train/communicator.h"

namespace deltanet {

std::unique_ptr<Communicator> make_communicator() { return single_process(); }

}  // namespace deltanet
