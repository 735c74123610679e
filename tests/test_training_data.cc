// The data that a training config asks for: text or shards, their tokenizer, the held-out part, what is refused.

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "data/corpus/shards.h"
#include "data/tokenizer/tokenizer_files.h"
#include "deltanet/tokenizer.h"
#include "temporary_directory.h"
#include "train/run/run_checkpoint.h"
#include "train/run/training_data.h"
#include "train/trainer.h"
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
  config.tokenizer = "bytes";
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

// Where documents are kept apart, none is predicted from the one before; otherwise they follow one another.
TEST(TrainingData, DocumentsAreKeptApartWhereThatIsAskedFor) {
  const TemporaryDirectory folder;
  std::string lines;
  for (int i = 0; i < 300; ++i) lines += "{\"text\": \"" + std::string(20, static_cast<char>('a' + i % 26)) + "\"}\n";
  put(folder / "text.jsonl", lines);
  TrainConfig config = config_with(folder / "text.jsonl");
  const TrainingData joined = load_training_data(config, 256);
  config.document_boundaries = true;
  const TrainingData apart = load_training_data(config, 256);
  for (const auto part : {&TrainingData::train, &TrainingData::held_out}) {
    Batch plain, batch;
    (joined.*part)->fill(0, 3, plain);
    (apart.*part)->fill(0, 3, batch);
    EXPECT_EQ(plain.offsets, (std::vector<int64_t>{0, 32, 64, 96}));
    EXPECT_EQ(batch.ids, plain.ids);
    std::vector<int64_t> offsets = {0};
    for (std::size_t t = 0; t < plain.ids.size(); ++t) {
      const bool ends = plain.targets[t] != plain.ids[t];  // a document is one letter
      EXPECT_NE(plain.targets[t], -100);
      EXPECT_EQ(batch.targets[t], ends ? -100 : plain.targets[t]) << t;
      if (ends || (t + 1) % 32 == 0) offsets.push_back(static_cast<int64_t>(t) + 1);
    }
    EXPECT_EQ(batch.offsets, offsets);
    EXPECT_GT(offsets.size(), 6u);
  }
}

TEST(TrainingData, NothingIsHeldOutThatNobodyEvaluates) {
  const TemporaryDirectory folder;
  put(folder / "text.txt", std::string(5000, 'a'));
  put(folder / "eval.txt", std::string(1000, 'b'));
  TrainConfig config = config_with(folder / "text.txt");
  config.eval_every = 0;
  const TrainingData data = load_training_data(config, 256);
  EXPECT_EQ(data.train->samples_per_epoch(), 4999 / 32);
  EXPECT_EQ(data.held_out, nullptr);
  config.eval_data = (folder / "eval.txt").string();  // asked for by name: read and checked
  EXPECT_EQ(load_training_data(config, 256).held_out->samples_per_epoch(), 999 / 32);
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

const std::string kGpt2 = DELTANET_SOURCE_DIR "/tests/golden/tokenizers/gpt2.json";
const std::string kText(2000, 'a');

// Shards of a text, as `deltanet tokenize` makes them.
void write_shards(const std::filesystem::path& directory, const std::string& tokenizer, bool with_files = true) {
  const auto loaded = tokenizer == "bytes" ? byte_tokenizer() : load_tokenizer(tokenizer);
  data::ShardWriter writer(
      directory, {.vocab_size = loaded->vocab_size(),
                  .tokenizer = tokenizer,
                  .tokenizer_files = with_files ? data::read_tokenizer_files(tokenizer) : data::NamedFiles()});
  writer.append(loaded->encode(kText + std::string(2000, 'b') + kText));
  writer.finish();
}

TEST(ChosenTokenizer, IsTheGivenOneOrThatOfTheData) {
  const TemporaryDirectory folder;
  put(folder / "text.txt", kText);
  write_shards(folder / "gpt2", kGpt2);
  write_shards(folder / "bytes", "bytes");
  write_shards(folder / "unknown", kGpt2, /*with_files=*/false);
  const auto chosen = [&](const char* data, int64_t vocab_size, const std::string& given = "") {
    TrainConfig config = config_with(folder / data);
    config.tokenizer = given;
    return chosen_tokenizer(config, vocab_size);
  };
  EXPECT_EQ(chosen("gpt2", 2000), (folder / "gpt2/tokenizer").string());
  EXPECT_EQ(chosen("bytes", 2000), "bytes");
  EXPECT_EQ(chosen("unknown", 256), "");
  EXPECT_EQ(chosen("text.txt", 256), "bytes");
  EXPECT_EQ(chosen("text.txt", 2000, "bytes"), "bytes");
  EXPECT_EQ(chosen("gpt2", 2000, "other"), "other");
  EXPECT_EQ(error_of([&] { chosen("text.txt", 32000); }),
            "[train] tokenizer: not given, and the model's vocabulary has 32000 tokens; expected the path of a "
            "tokenizer, or \"bytes\"");
}

TEST(TrainingData, TextForEvaluationIsReadAsTheShardsWere) {
  const TemporaryDirectory folder;
  put(folder / "eval.txt", kText);
  write_shards(folder / "shards", kGpt2);
  TrainConfig config = config_with(folder / "shards");
  config.eval_data = (folder / "eval.txt").string();
  const auto tokenizer = load_tokenizer(kGpt2);
  const TrainingData data = load_training_data(config, tokenizer->vocab_size());
  Batch batch;
  data.held_out->fill(0, 1, batch);
  std::vector<int32_t> expected = tokenizer->encode(kText);
  expected.resize(batch.ids.size());
  EXPECT_EQ(std::vector<int32_t>(batch.ids.begin(), batch.ids.end()), expected);
  EXPECT_NE(expected.front(), 'a');

  write_shards(folder / "unknown", kGpt2, /*with_files=*/false);
  config.data = (folder / "unknown").string();
  const std::string error = error_of([&] { load_training_data(config, tokenizer->vocab_size()); });
  EXPECT_NE(error.find("[train] tokenizer: not given, and "), std::string::npos) << error;
  EXPECT_NE(error.find("eval.txt"), std::string::npos) << error;
  config.tokenizer = kGpt2;
  EXPECT_EQ(load_training_data(config, tokenizer->vocab_size()).held_out->samples_per_epoch(),
            data.held_out->samples_per_epoch());
}

TEST(TrainingData, ATokenizerThatDidNotMakeTheShardsIsRefused) {
  const TemporaryDirectory folder;
  write_shards(folder / "shards", kGpt2);
  TrainConfig config = config_with(folder / "shards");
  config.tokenizer = "bytes";
  const std::string error = error_of([&] { load_training_data(config, 2000); });
  EXPECT_NE(error.find("[train] tokenizer: given bytes, which has 256 tokens, but "), std::string::npos) << error;
  EXPECT_NE(error.find("made with one of " + std::to_string(load_tokenizer(kGpt2)->vocab_size()) + ";"),
            std::string::npos)
      << error;
}

TEST(TrainingData, TheTokenizerOfTheShardsReachesTheCheckpoints) {
  const TemporaryDirectory folder;
  write_shards(folder / "shards", kGpt2);
  TrainConfig config = config_with(folder / "shards");
  config.vocab_size = load_tokenizer(kGpt2)->vocab_size();
  const auto processes = single_process();
  Trainer trainer(config, *processes);
  trainer.initialize();
  trainer.step(*load_training_data(config, config.vocab_size).train);
  std::filesystem::create_directory(folder / "run");
  save_run_checkpoint(folder / "run", trainer, {});
  EXPECT_EQ(contents(folder / "run/step-1/tokenizer.json"), contents(kGpt2));
  // Data that are gone cost a checkpoint its tokenizer, not the run its checkpoint.
  std::filesystem::remove_all(folder / "shards");
  std::filesystem::create_directory(folder / "other");
  save_run_checkpoint(folder / "other", trainer, {});
  EXPECT_TRUE(std::filesystem::exists(folder / "other/step-1/model.safetensors"));
}

}  // namespace
}  // namespace deltanet::test
