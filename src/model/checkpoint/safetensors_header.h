#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

// The JSON header of a safetensors file, as written: nothing is known yet about whether it fits the file.

namespace deltanet {

struct SafetensorsEntry {
  std::string name, dtype;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes, from the end of the header
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // names are unique
  std::map<std::string, std::string> metadata;
};

// Accepts exactly what the format describes; an Error begins with "[safetensors] file", and names tensor and field.
SafetensorsHeader parse_safetensors_header(std::string_view json, const std::string& file);

}  // namespace deltanet
