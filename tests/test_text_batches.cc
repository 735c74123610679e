// Samples of a text: every one once per epoch, the same from any split, errors before training.

#include <gtest/gtest.h>

#include <set>

#include "temporary_directory.h"
#include "train/text_batches.h"
#include "train_fixture.h"

namespace deltanet::test {
namespace {

TEST(Shuffled, IsAPermutationOfItsOwnForEveryEpoch) {
  for (const int64_t n : {1, 2, 3, 10, 64, 65, 1000}) {
    std::vector<int64_t> orders[2];
    for (const uint64_t epoch : {0, 1}) {
      for (int64_t i = 0; i < n; ++i) orders[epoch].push_back(shuffled(i, n, 7, epoch));
      const std::set<int64_t> all(orders[epoch].begin(), orders[epoch].end());
      EXPECT_EQ(static_cast<int64_t>(all.size()), n);
      EXPECT_EQ(*all.begin(), 0);
      EXPECT_EQ(*all.rbegin(), n - 1);
    }
    if (n >= 10) {
      EXPECT_NE(orders[0], orders[1]);
    }
  }
}

TEST(TextBatches, TargetsFollowAndSplitsAgree) {
  auto tokens = std::make_shared<std::vector<int32_t>>();
  for (int32_t i = 0; i < 101; ++i) tokens->push_back(i);
  const TextBatches source(tokens, 0, 101, {.sequence_length = 10, .seed = 3, .shuffle = true, .boundary = -1});
  EXPECT_EQ(source.samples_per_epoch(), 10);
  Batch whole, first, second;
  source.fill(5, 8, whole);  // across the end of an epoch
  source.fill(5, 3, first);
  source.fill(8, 5, second);
  for (std::size_t i = 0; i < whole.ids.size(); ++i) EXPECT_EQ(whole.targets[i], whole.ids[i] + 1);
  first.ids.insert(first.ids.end(), second.ids.begin(), second.ids.end());
  EXPECT_EQ(whole.ids, first.ids);
  EXPECT_EQ(whole.offsets.size(), 9u);
}

TEST(TextBatches, BoundariesBeginNewSequences) {
  const auto tokens = std::make_shared<std::vector<int32_t>>(std::vector<int32_t>{1, 0, 2, 3, 0, 4, 5, 6, 0});
  const TextBatches source(tokens, 0, 9, {.sequence_length = 4, .seed = 0, .shuffle = false, .boundary = 0});
  Batch batch;
  source.fill(0, 2, batch);
  EXPECT_EQ(batch.offsets, (std::vector<int64_t>{0, 2, 4, 5, 8}));
}

TEST(TrainingData, BadDataIsRefused) {
  const TemporaryDirectory folder;
  TrainConfig config = tiny_config();
  const auto error = [&](int64_t vocab_size) { return error_of([&] { load_training_data(config, vocab_size); }); };
  EXPECT_NE(error(256).find("not given"), std::string::npos);
  config.data = (folder / "text").string();
  EXPECT_NE(error(256).find("No such file"), std::string::npos);
  put(folder / "text", "");
  EXPECT_NE(error(256).find("is empty"), std::string::npos);
  put(folder / "text", "short");
  EXPECT_NE(error(256).find("5 tokens; expected at least 33"), std::string::npos);
  put(folder / "text", std::string(5000, 'a'));
  EXPECT_EQ(error(98), "");
  EXPECT_NE(error(97).find("token 97 at position 0"), std::string::npos);
  const TrainingData data = load_training_data(config, 98);
  EXPECT_EQ(data.train->samples_per_epoch() + data.held_out->samples_per_epoch(), 4999 / 32);
  EXPECT_EQ(data.held_out->samples_per_epoch(), 4);
}

}  // namespace
}  // namespace deltanet::test
