#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "deltanet/reference.h"
#include "deltanet/rows.h"

// Golden files: inputs, float64 results and float64 gradients of one row in one case, as safetensors with metadata.
// tests/golden holds a subset so that a fresh clone tests itself. The environment variable DELTANET_FIXTURES names a
// folder with the full set; without it, ../shared/fixtures/ops beside the source tree is used where it exists.

namespace deltanet::test {

struct GoldenFile {
  std::string row, case_name;
  Spec spec;
  Arrays inputs;     // "q", ..., "cu_seqlens"
  Arrays upstream;   // "do", "dS_final", ...
  Arrays outputs;    // "o", "S_final", ...
  Arrays gradients;  // keyed by the input: "q", ...
};

// All tensors of a safetensors file (F32, F64 or I64, widened to double) and its metadata.
// Throws deltanet::Error when the file is not one.
Arrays read_safetensors(const std::filesystem::path& path, std::map<std::string, std::string>& metadata);

GoldenFile read_golden(const std::filesystem::path& path);

// Every golden file there is, by file name; a file of the full set stands in for its copy in tests/golden.
std::vector<std::filesystem::path> golden_paths();

// "pgdn.base.safetensors" -> "pgdn_base", for test names.
std::string golden_name(const std::filesystem::path& path);

}  // namespace deltanet::test
