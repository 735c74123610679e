#include "cli/processes.h"

#include <cstdlib>
#include <string>

#include "deltanet/error.h"

namespace deltanet::cli {

std::unique_ptr<Communicator> make_communicator() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const char* size = std::getenv(name);
    if (size && std::string(size) != "1") {
      throw Error("[train] mpirun started " + std::string(size) +
                  " processes, but this program was built without MPI; install libopenmpi-dev and build again");
    }
  }
  return single_process();
}

}  // namespace deltanet::cli
