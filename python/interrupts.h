#pragma once

#include <nanobind/nanobind.h>

#include <exception>

#include "deltanet/interrupt.h"

namespace deltanet {

// Makes a long call, call(interrupt), without the GIL. Ctrl-C, or any other signal whose handler in Python raises, ends
// it: the exception of the handler leaves the call. Python runs handlers on its main thread only, so that calls of
// other threads are not ended.
template <class Call>
auto without_gil(const Call& call) {
  const nanobind::gil_scoped_release unlocked;
  std::exception_ptr raised;
  Interrupt interrupt([&] {
    const nanobind::gil_scoped_acquire locked;
    if (PyErr_CheckSignals() == 0) return false;
    raised = std::make_exception_ptr(nanobind::python_error());
    return true;
  });
  try {
    return call(interrupt);
  } catch (const Interrupted&) {
    std::rethrow_exception(raised);
  }
}

}  // namespace deltanet
