#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// TensorBoard's event files, without its libraries: records of protobuf messages, each with masked CRC-32C sums.

namespace deltanet {

using Scalars = std::vector<std::pair<std::string, double>>;

uint32_t crc32c(std::string_view bytes);  // Castagnoli

// The bytes of one record around a message: length, its sum, the message, its sum.
std::string event_record(std::string_view message);
// tensorflow.Event messages: of the start of a file, of scalars, and of a restart, after which TensorBoard forgets what
// older files say about this step and later ones.
std::string version_event(double wall_time);
std::string scalar_event(double wall_time, int64_t step, const Scalars& scalars);
std::string restart_event(double wall_time, int64_t step);

// One event file in a folder, made with the first scalars. What cannot be written is an Error.
class TensorBoardWriter {
 public:
  TensorBoardWriter(std::filesystem::path folder, int64_t first_step);
  void write(int64_t step, const Scalars& scalars);

 private:
  void append(std::string_view bytes);

  std::filesystem::path folder_, file_;
  int64_t first_step_;
};

}  // namespace deltanet
