#include "deltanet/reference.h"

#include "recurrence/reference_run.h"

namespace deltanet {

Arrays reference_forward(const Spec& spec, const Arrays& inputs) { return reference::forward<double>(spec, inputs); }

Arrays reference_backward(const Spec& spec, const Arrays& inputs, const Arrays& upstream) {
  return reference::backward<double>(spec, inputs, upstream);
}

}  // namespace deltanet
