// The data that a training config asks for: text or shards, the held-out part, what is refused.

#include <gtest/gtest.h>

#include <set>

#include "data/shards.h"
#include "temporary_directory.h"
#include "train/training_data.h"
#include "train_fixture.h"

namespace deltanet::test {
namespace {

TrainConfig config_with(const std::filesystem::path& data) {
  TrainConfig config = tiny_config();
  config.data = data.string();
  return config;
}

TEST(TrainingData, BadDataIsRefused) {
  const TemporaryDirectory folder;
  TrainConfig config = tiny_config();
  const auto error = [&](int64_t vocab_size) { return error_of([&] { load_training_data(config, vocab_size); }); };
  EXPECT_NE(error(256).find("not given"), std::string::npos);
  config.data = (folder / "text.txt").string();
  EXPECT_NE(error(256).find("text.txt"), std::string::npos);
  put(folder / "text.txt", "");
  EXPECT_NE(error(256), "");
  put(folder / "text.txt", "short");
  EXPECT_NE(error(256).find("33"), std::string::npos) << error(256);
  put(folder / "text.txt", std::string(5000, 'a'));
  EXPECT_EQ(error(98), "");
  EXPECT_NE(error(97).find("97"), std::string::npos) << error(97);
}

TEST(TrainingData, TheEndIsHeldOut) {
  const TemporaryDirectory folder;
  std::string text;
  for (int i = 0; i < 5000; ++i) text += static_cast<char>('a' + i % 26);
  put(folder / "text.txt", text);
  const TrainingData data = load_training_data(config_with(folder / "text.txt"), 256);
  const int64_t train = data.train->samples_per_epoch(), held_out = data.held_out->samples_per_epoch();
  EXPECT_EQ(train + held_out, 4999 / 32);
  EXPECT_EQ(held_out, 4);
  Batch batch;
  data.held_out->fill(0, held_out, batch);
  EXPECT_EQ(batch.ids.front(), text[static_cast<std::size_t>(train * 32)]);
}

TEST(TrainingData, ShardsAreRead) {
  const TemporaryDirectory folder;
  data::ShardWriter writer(folder / "shards", {.vocab_size = 64, .eos = 0});
  std::vector<int32_t> document;
  for (int32_t i = 0; i < 1000; ++i) document.push_back(1 + i % 60);
  writer.append(document);
  writer.end_document();
  writer.finish();
  const TrainConfig config = config_with(folder / "shards");
  const TrainingData data = load_training_data(config, 64);
  Batch batch;
  data.train->fill(0, data.train->samples_per_epoch(), batch);
  EXPECT_EQ(std::set<int32_t>(batch.ids.begin(), batch.ids.end()).size(), 60u);
  EXPECT_NE(error_of([&] { load_training_data(config, 60); }), "");
}

}  // namespace
}  // namespace deltanet::test
