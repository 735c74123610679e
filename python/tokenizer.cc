// Tokenizer for Python.

#include "deltanet/tokenizer.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "interrupts.h"

namespace deltanet {

namespace nb = nanobind;

namespace {

std::string_view text_of(const nb::object& text) {
  if (nb::isinstance<nb::bytes>(text)) {
    const auto bytes = nb::borrow<nb::bytes>(text);
    return {static_cast<const char*>(bytes.data()), bytes.size()};
  }
  if (!nb::isinstance<nb::str>(text)) throw nb::type_error("text: expected str or bytes");
  Py_ssize_t size = 0;
  const char* utf8 = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (!utf8) nb::raise_python_error();
  return {utf8, static_cast<std::size_t>(size)};
}

nb::bytes to_bytes(const std::string& text) { return nb::bytes(text.data(), text.size()); }

}  // namespace

void bind_tokenizer(nb::module_& m) {
  nb::class_<Tokenizer>(m, "Tokenizer")
      .def("encode",
           [](const Tokenizer& self, const nb::object& text, bool add_special) {
             const std::string_view bytes = text_of(text);
             return without_gil([&](Interrupt&) { return self.encode(bytes, add_special); });
           })
      .def("decode", [](const Tokenizer& self, const std::vector<int32_t>& ids,
                        bool skip_special) { return to_bytes(self.decode(ids, skip_special)); })
      .def("piece", &Tokenizer::piece)
      .def("id_of", [](const Tokenizer& self, std::string_view token) { return self.id_of(token); })
      .def_prop_ro("vocab_size", &Tokenizer::vocab_size)
      .def_prop_ro("bos", &Tokenizer::bos)
      .def_prop_ro("eos", &Tokenizer::eos);
  m.def("load_tokenizer", [](const nb::bytes& name) { return load_tokenizer(path_of(name)); });
  m.def("byte_tokenizer", [] { return byte_tokenizer(); });
}

}  // namespace deltanet
