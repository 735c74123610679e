#include "cli/processes.h"

namespace deltanet::cli {

std::unique_ptr<Communicator> make_communicator() { return single_process(); }

}  // namespace deltanet::cli
