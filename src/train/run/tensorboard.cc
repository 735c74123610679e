#include "train/run/tensorboard.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <fstream>

#include "deltanet/error.h"

namespace deltanet {
namespace {

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);
    table[i] = crc;
  }
  return table;
}

// A sum of bytes that hold a sum would be weak; TensorFlow rotates it and adds a constant.
uint32_t masked(uint32_t crc) { return std::rotr(crc, 15) + 0xA282EAD8u; }

template <class T>
std::string little_endian(T value) {
  static_assert(std::endian::native == std::endian::little);
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

// Protobuf's wire format: a field is a tag (number and kind) and a value.
std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
std::string varint_field(unsigned number, uint64_t value) { return varint(number << 3) + varint(value); }
std::string double_field(unsigned number, double value) { return varint(number << 3 | 1) + little_endian(value); }
std::string float_field(unsigned number, float value) { return varint(number << 3 | 5) + little_endian(value); }
std::string bytes_field(unsigned number, std::string_view value) {
  return varint(number << 3 | 2) + varint(value.size()) + std::string(value);
}

// Numbers of the fields of tensorflow.Event, Summary, Summary.Value and SessionLog.
constexpr unsigned kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
constexpr unsigned kValue = 1, kTag = 1, kSimpleValue = 2, kStatus = 1;
constexpr uint64_t kStart = 1;

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = make_crc_table();
  uint32_t crc = ~0u;
  for (const char byte : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  return ~crc;
}

std::string event_record(std::string_view message) {
  const std::string length = little_endian(uint64_t{message.size()});
  return length + little_endian(masked(crc32c(length))) + std::string(message) + little_endian(masked(crc32c(message)));
}

std::string version_event(double wall_time) {
  return double_field(kWallTime, wall_time) + bytes_field(kFileVersion, "brain.Event:2");
}

std::string scalar_event(double wall_time, int64_t step, const Scalars& scalars) {
  std::string summary;
  for (const auto& [name, value] : scalars) {
    summary += bytes_field(kValue, bytes_field(kTag, name) + float_field(kSimpleValue, static_cast<float>(value)));
  }
  return double_field(kWallTime, wall_time) + varint_field(kStep, static_cast<uint64_t>(step)) +
         bytes_field(kSummary, summary);
}

std::string restart_event(double wall_time, int64_t step) {
  return double_field(kWallTime, wall_time) + varint_field(kStep, static_cast<uint64_t>(step)) +
         bytes_field(kSessionLog, varint_field(kStatus, kStart));
}

TensorBoardWriter::TensorBoardWriter(std::filesystem::path folder, int64_t first_step)
    : folder_(std::move(folder)), first_step_(first_step) {}

void TensorBoardWriter::write(int64_t step, const Scalars& scalars) {
  const double time = now();
  if (file_.empty()) {
    char host[256] = "localhost";
    gethostname(host, sizeof host - 1);
    file_ = folder_ / ("events.out.tfevents." + std::to_string(static_cast<int64_t>(time)) + "." + host + "." +
                       std::to_string(getpid()));
    append(event_record(version_event(time)) + event_record(restart_event(time, first_step_)));
  }
  append(event_record(scalar_event(time, step, scalars)));
}

void TensorBoardWriter::append(std::string_view bytes) {
  std::ofstream file(file_, std::ios::binary | std::ios::app);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw Error("[tensorboard] " + file_.string() + ": cannot be written; is the disk full?");
}

}  // namespace deltanet
