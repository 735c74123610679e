// TensorBoard's files: the checksum of RFC 3720, known bytes of a record, and a file read back by a parser of its own.

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "temporary_directory.h"
#include "train/run/metrics.h"
#include "train/run/tensorboard.h"

namespace deltanet::test {
namespace {

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

TEST(TensorBoard, ChecksumsAreCastagnolis) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
}

TEST(TensorBoard, RecordsHaveKnownBytes) {
  // wall_time = 1.0, step = 300, summary { value { tag: "loss" simple_value: 2.5 } }
  EXPECT_EQ(hex(scalar_event(1.0, 300, {{"loss", 2.5}})), "09000000000000f03f10ac022a0d0a0b0a046c6f73731500002040");
  EXPECT_EQ(hex(version_event(1.0)), "09000000000000f03f1a0d627261696e2e4576656e743a32");
  EXPECT_EQ(hex(restart_event(1.0, 7)), "09000000000000f03f10073a020801");
}

template <class T>
T take(std::string& bytes) {
  T value;
  EXPECT_GE(bytes.size(), sizeof value);
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.erase(0, sizeof value);
  return value;
}

// As TensorFlow's reader undoes it.
uint32_t unmasked(uint32_t masked) {
  const uint32_t rotated = masked - 0xA282EAD8u;
  return rotated >> 17 | rotated << 15;
}

TEST(TensorBoard, FilesReadBack) {
  const TemporaryDirectory folder;
  TensorBoardWriter writer(folder.path(), 1);
  EXPECT_TRUE(folder.names().empty());
  writer.write(1, {{"loss", 3.0}, {"lr", 1e-3}});
  writer.write(2, {{"loss", 2.0}});
  ASSERT_EQ(folder.names().size(), 1u);
  EXPECT_TRUE(folder.names().front().starts_with("events.out.tfevents."));
  std::string bytes = contents(folder / folder.names().front());
  std::vector<std::string> messages;
  while (!bytes.empty()) {
    const std::string length_bytes = bytes.substr(0, 8);
    const auto length = take<uint64_t>(bytes);
    EXPECT_EQ(unmasked(take<uint32_t>(bytes)), crc32c(length_bytes));
    messages.push_back(bytes.substr(0, length));
    bytes.erase(0, length);
    EXPECT_EQ(unmasked(take<uint32_t>(bytes)), crc32c(messages.back()));
  }
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_NE(messages[0].find("brain.Event:2"), std::string::npos);
  EXPECT_NE(messages[2].find("lr"), std::string::npos);
  EXPECT_NE(messages[3].find("loss"), std::string::npos);
}

TEST(Metrics, ALineHasEveryNumberUnderItsName) {
  Metrics metrics{
      .step = 3, .loss = 1.5, .lr = 0.25, .grad_norm = 2.5, .tokens = 700, .tokens_per_second = 12.5, .bad_steps = 2};
  const std::string line =
      R"({"step":3,"loss":1.5,"lr":0.25,"grad_norm":2.5,"tokens":700,"tokens_per_second":12.5,"bad_steps":2)";
  EXPECT_EQ(metrics_line(metrics), line + "}\n");
  metrics.val_loss = 0.75;
  EXPECT_EQ(metrics_line(metrics), line + ",\"val_loss\":0.75}\n");
}

TEST(Metrics, ResumingDropsWhatCameAfterTheCheckpoint) {
  const TemporaryDirectory folder;
  const auto path = folder / "metrics.jsonl";
  {
    MetricsFile file(path, 0);
    for (int64_t step = 1; step <= 5; ++step) file.append({.step = step, .loss = 1.0, .val_loss = 0.5});
  }
  const std::string all = contents(path);
  put(path, all + "{\"step\":2,\"lo");  // cut off by a crash
  MetricsFile file(path, 3);
  const std::string line = metrics_line({.step = 1, .loss = 1.0, .val_loss = 0.5});
  EXPECT_EQ(contents(path), all.substr(0, 3 * line.size()));
  Metrics bad;
  bad.step = 4;
  bad.loss = std::numeric_limits<double>::quiet_NaN();
  file.append(bad);
  EXPECT_TRUE(
      contents(path).ends_with("{\"step\":4,\"loss\":null,\"lr\":0.0,\"grad_norm\":0.0,\"tokens\":0,\"tokens_per_"
                               "second\":0.0,\"bad_steps\":0}\n"));
}

}  // namespace
}  // namespace deltanet::test
