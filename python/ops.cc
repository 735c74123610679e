// The recurrence on the tensors of PyTorch, for deltanet/ops. This module is not linked against PyTorch: a tensor is
// borrowed by asking it for its address, sizes and strides, without the Python code of an exchange by DLPack.
// Types and devices were checked before; sizes are checked here.

#include <nanobind/nanobind.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "bindings.h"
#include "deltanet/deltanet.h"
#include "interrupts.h"

namespace deltanet {
namespace {

namespace nb = nanobind;

nb::object call(nb::handle object, PyObject* method) {
  PyObject* result = PyObject_CallMethodNoArgs(object.ptr(), method);
  if (result == nullptr) throw nb::python_error();
  return nb::steal(result);
}

int64_t to_int(PyObject* number) {
  const int64_t value = PyLong_AsLongLong(number);
  if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return value;
}

template <class T>
T* address(nb::handle tensor) {
  static PyObject* const method = PyUnicode_InternFromString("data_ptr");
  return reinterpret_cast<T*>(to_int(call(tensor, method).ptr()));  // NOLINT(performance-no-int-to-ptr)
}

nb::object sizes(nb::handle tensor) {
  static PyObject* const method = PyUnicode_InternFromString("size");
  return call(tensor, method);
}

nb::object strides(nb::handle tensor) {
  static PyObject* const method = PyUnicode_InternFromString("stride");
  return call(tensor, method);
}

Tensor view(std::string_view name, nb::handle tensor) {
  const nb::object shape = sizes(tensor), stride = strides(tensor);
  const Py_ssize_t rank = PyTuple_Size(shape.ptr());
  if (rank > Tensor::kMaxRank) {
    throw Error("[torch] " + std::string(name) + ": given rank " + std::to_string(rank) + "; expected at most " +
                std::to_string(Tensor::kMaxRank));
  }
  Tensor result;
  result.data = address<float>(tensor);
  result.rank = static_cast<int>(rank);
  for (Py_ssize_t axis = 0; axis < rank; ++axis) {
    result.shape[axis] = to_int(PyTuple_GetItem(shape.ptr(), axis));
    result.stride[axis] = to_int(PyTuple_GetItem(stride.ptr(), axis));
  }
  if (result.data == nullptr) {
    if (result.size() > 0) {
      throw Error("[torch] " + std::string(name) + ": given a tensor without memory; expected an ordinary one");
    }
    static float nothing;  // an empty tensor has no address, but it is not absent
    result.data = &nothing;
  }
  return result;
}

// A tuple of tensors, or None where one is absent, in the order of the table.
template <class Group>
Group read_group(std::span<const Arg<Group>> args, const nb::tuple& tensors) {
  Group group;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const nb::handle tensor = tensors[i];
    if (!tensor.is_none()) group.*args[i].member = view(args[i].name, tensor);
  }
  return group;
}

// cu_seqlens is None or a dense tensor of int64.
Inputs read_inputs(const nb::tuple& tensors, nb::handle cu_seqlens) {
  Inputs inputs = read_group(input_args(), tensors);
  if (!cu_seqlens.is_none()) {
    const int64_t count = to_int(PyTuple_GetItem(sizes(cu_seqlens).ptr(), 0));
    inputs.cu_seqlens = {address<const int64_t>(cu_seqlens), static_cast<std::size_t>(count)};
  }
  return inputs;
}

void torch_forward(const Spec& spec, const nb::tuple& tensors, nb::handle cu_seqlens, const nb::tuple& results,
                   bool recurrent, int threads) {
  const Inputs inputs = read_inputs(tensors, cu_seqlens);
  const Outputs outputs = read_group(output_args(), results);
  const Options options{.mode = recurrent ? Mode::kRecurrent : Mode::kChunk, .threads = threads};
  without_gil([&](Interrupt&) { forward(spec, inputs, outputs, options); });
}

void torch_backward(const Spec& spec, const nb::tuple& tensors, nb::handle cu_seqlens, const nb::tuple& upstream,
                    const nb::tuple& results, int threads) {
  const Inputs inputs = read_inputs(tensors, cu_seqlens);
  const OutputGradients gradients_of_outputs = read_group(output_gradient_args(), upstream);
  const InputGradients gradients = read_group(input_gradient_args(), results);
  // Autograd of upstream's MesaNet takes the entries of the initial Gram as they are.
  const Options options{.threads = threads, .free_gram_gradient = true};
  without_gil([&](Interrupt&) { backward(spec, inputs, gradients_of_outputs, gradients, options); });
}

template <class Group>
nb::tuple names(std::span<const Arg<Group>> args) {
  nb::list list;
  for (const Arg<Group>& arg : args) list.append(nb::str(arg.name.data(), arg.name.size()));
  return nb::tuple(list);
}

}  // namespace

void bind_ops(nb::module_& m) {
  m.attr("INPUT_NAMES") = names(input_args());
  m.attr("OUTPUT_NAMES") = names(output_args());
  m.def("torch_forward", torch_forward, nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg());
  m.def("torch_backward", torch_backward, nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg());
}

}  // namespace deltanet
