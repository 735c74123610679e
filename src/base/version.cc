#include "deltanet/runtime.h"

namespace deltanet {

std::string version() { return DELTANET_VERSION; }

}  // namespace deltanet
