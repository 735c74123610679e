// The compiled part of the Python package: arrays in and out of the C++ API, without copies and with the GIL released.
// What may be given, and the conversion to the types expected here, is the business of deltanet/__init__.py.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bindings.h"
#include "deltanet/deltanet.h"
#include "interrupts.h"

namespace nb = nanobind;

namespace deltanet {
namespace {

using FloatArray = nb::ndarray<const float, nb::device::cpu>;
using DoubleArray = nb::ndarray<const double, nb::c_contig, nb::device::cpu>;
using Offsets = std::vector<int64_t>;  // cu_seqlens, empty without packing

// A view of a NumPy array.
ConstTensor view(std::string_view name, const FloatArray& array) {
  if (array.ndim() > ConstTensor::kMaxRank) {
    throw Error("[python] " + std::string(name) + ": given rank " + std::to_string(array.ndim()) +
                "; expected at most " + std::to_string(ConstTensor::kMaxRank));
  }
  static const float nothing = 0;  // an empty array may have no address, but it is not absent
  ConstTensor tensor;
  tensor.data = array.size() == 0 ? &nothing : array.data();
  tensor.rank = static_cast<int>(array.ndim());
  for (std::size_t axis = 0; axis < array.ndim(); ++axis) {
    tensor.shape[axis] = static_cast<int64_t>(array.shape(axis));
    tensor.stride[axis] = array.stride(axis);
  }
  return tensor;
}

// Members of Inputs or OutputGradients from a dict; `prefix` is "d" for upstream gradients. Names were checked before.
template <class Group>
void read_group(Group& group, std::span<const Arg<Group>> args, std::string_view prefix,
                const std::map<std::string, FloatArray>& arrays) {
  for (const auto& [key, array] : arrays) {
    for (const Arg<Group>& arg : args) {
      if (std::string(prefix).append(arg.name) == key) group.*arg.member = view(key, array);
    }
  }
}

Inputs read_inputs(const std::map<std::string, FloatArray>& arrays, const Offsets& cu_seqlens) {
  Inputs inputs;
  read_group(inputs, input_args(), "", arrays);
  inputs.cu_seqlens = cu_seqlens;
  return inputs;
}

Options make_options(const std::string& mode, int threads, bool check_values) {
  Options options;
  options.mode = mode == "recurrent" ? Mode::kRecurrent : Mode::kChunk;
  options.threads = threads;
  options.check_values = check_values;
  return options;
}

nb::dict py_forward(const Spec& spec, const std::map<std::string, FloatArray>& arrays, const Offsets& cu_seqlens,
                    const std::string& mode, int threads, bool check_values) {
  const Inputs inputs = read_inputs(arrays, cu_seqlens);
  const Shape shape = infer_shape(spec, inputs);
  Outputs outputs;
  nb::dict results;
  for (const Arg<Outputs>& arg : output_args()) {
    const std::vector<int64_t> extents = output_shape(spec, arg.name, shape);
    if (extents.empty()) continue;
    auto [array, data] = new_array<float>(extents);
    outputs.*arg.member = {data, extents};
    results[nb::cast(arg.name)] = array;
  }
  const Options options = make_options(mode, threads, check_values);
  without_gil([&](Interrupt&) { forward(spec, inputs, outputs, options); });
  return results;
}

nb::dict py_backward(const Spec& spec, const std::map<std::string, FloatArray>& arrays, const Offsets& cu_seqlens,
                     const std::map<std::string, FloatArray>& grads, int threads, bool check_values) {
  const Inputs inputs = read_inputs(arrays, cu_seqlens);
  OutputGradients upstream;
  read_group(upstream, output_gradient_args(), "d", grads);
  infer_shape(spec, inputs);  // before allocating anything

  InputGradients gradients;
  nb::dict results;
  for (std::size_t i = 0; i < input_args().size(); ++i) {
    const ConstTensor& input = inputs.*input_args()[i].member;
    if (!input) continue;
    const Arg<InputGradients>& arg = input_gradient_args()[i];
    const std::vector<int64_t> extents(input.shape.begin(), input.shape.begin() + input.rank);
    auto [array, data] = new_array<float>(extents);
    gradients.*arg.member = {data, extents};
    results[nb::cast(arg.name)] = array;
  }
  const Options options = make_options("chunk", threads, check_values);
  without_gil([&](Interrupt&) { backward(spec, inputs, upstream, gradients, options); });
  return results;
}

Arrays read_arrays(const std::map<std::string, DoubleArray>& arrays) {
  Arrays out;
  for (const auto& [name, array] : arrays) {
    Array& copy = out[name];
    for (std::size_t axis = 0; axis < array.ndim(); ++axis) {
      copy.shape.push_back(static_cast<int64_t>(array.shape(axis)));
    }
    copy.data.assign(array.data(), array.data() + array.size());
  }
  return out;
}

nb::dict to_python(const Arrays& arrays) {
  nb::dict results;
  for (const auto& [name, array] : arrays) {
    auto [object, data] = new_array<double>(array.shape);
    if (!array.data.empty()) std::memcpy(data, array.data.data(), array.data.size() * sizeof(double));
    results[nb::cast(name)] = object;
  }
  return results;
}

nb::dict py_reference_forward(const Spec& spec, const std::map<std::string, DoubleArray>& arrays) {
  const Arrays inputs = read_arrays(arrays);
  return to_python(without_gil([&](Interrupt&) { return reference_forward(spec, inputs); }));
}

nb::dict py_reference_backward(const Spec& spec, const std::map<std::string, DoubleArray>& arrays,
                               const std::map<std::string, DoubleArray>& grads) {
  const Arrays inputs = read_arrays(arrays), upstream = read_arrays(grads);
  return to_python(without_gil([&](Interrupt&) { return reference_backward(spec, inputs, upstream); }));
}

// Names that the row takes or returns, whatever the sizes.
constexpr Shape kAnyShape{1, 1, 1, 1, 1, 1, 1};

std::vector<std::string> input_names(const Spec& spec) {
  std::vector<std::string> names;
  for (const Arg<Inputs>& arg : input_args()) {
    if (!input_shape(spec, arg.name, kAnyShape).empty()) names.emplace_back(arg.name);
  }
  return names;
}

std::vector<std::string> output_names(const Spec& spec) {
  std::vector<std::string> names;
  for (const Arg<Outputs>& arg : output_args()) {
    if (!output_shape(spec, arg.name, kAnyShape).empty()) names.emplace_back(arg.name);
  }
  return names;
}

}  // namespace

NB_MODULE(_core, m) {
  const nb::exception<Error> error(m, "Error", PyExc_ValueError);
  // A message may name a file, whose name need not be UTF-8.
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void* type) {
        try {
          std::rethrow_exception(thrown);
        } catch (const Error& e) {
          const auto size = static_cast<Py_ssize_t>(std::strlen(e.what()));
          const auto text = nb::steal(PyUnicode_DecodeUTF8(e.what(), size, "surrogateescape"));
          PyErr_SetObject(static_cast<PyObject*>(type), text.ptr());
        }
      },
      error.ptr());

  nb::class_<Spec>(m, "Spec")
      .def(nb::init<>())
      .def_static("of_row", [](std::string_view name) { return find_row(name).spec; })
      .def("set", [](Spec& spec, std::string_view key, std::string_view value) { set_option(spec, key, value); })
      .def("set_all",
           [](Spec& spec, std::vector<std::pair<std::string, std::string>> choices) {
             set_options(spec, std::move(choices));
           })
      .def("validate", [](const Spec& spec) { validate(spec); })
      .def_prop_ro("options", [](const Spec& spec) { return options(spec); })
      .def_prop_ro("input_names", input_names)
      .def_prop_ro("output_names", output_names);

  m.def("rows", [] {
    nb::list list;
    for (const Row& row : rows()) list.append(nb::make_tuple(row.name, row.paper, row.summary, row.spec));
    return list;
  });
  m.def("forward", py_forward);
  m.def("backward", py_backward);
  m.def("reference_forward", py_reference_forward);
  m.def("reference_backward", py_reference_backward);

  m.def("version", version);
  m.def("simd_targets", simd_targets);
  m.def("simd_target", simd_target);
  m.def("set_simd_target", set_simd_target);
  m.def("default_threads", default_threads);

  bind_model(m);
  bind_ops(m);
  bind_short_conv(m);
  bind_tokenizer(m);
}

}  // namespace deltanet
