#pragma once

#include <nanobind/nanobind.h>

#include <string>

// The parts of the compiled module, one file each.

namespace deltanet {

void bind_model(nanobind::module_& m);
void bind_ops(nanobind::module_& m);
void bind_short_conv(nanobind::module_& m);
void bind_tokenizer(nanobind::module_& m);

// The name of a file as os.fsencode gives it: names need not be UTF-8.
inline std::string path_of(const nanobind::bytes& name) {
  std::string path(name.c_str(), name.size());
  if (path.find('\0') != std::string::npos)
    throw nanobind::value_error("path: has a zero byte; no file has such a name");
  return path;
}

}  // namespace deltanet
