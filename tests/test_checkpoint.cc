// Checkpoints: directories of transformers are read and written byte for byte, disagreements between index and shards
// are refused, and a save that is interrupted anywhere never leaves a mixture.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "file_calls.h"
#include "file_size_limit.h"
#include "model/checkpoint/checkpoint.h"
#include "temporary_directory.h"

namespace deltanet::test {
namespace {

namespace fs = std::filesystem;
using Files = std::map<std::string, std::string>;

const fs::path kSharded = fs::path(DELTANET_SOURCE_DIR) / "tests/golden/checkpoint/sharded";

// Weights with one value everywhere, which tells saves apart. Tensors of 2, 1 and 3 values.
class Weights {
 public:
  explicit Weights(float value) : values_(3, value) {}

  // They borrow the values of this.
  std::vector<StoredTensor> tensors() const { return {tensor("a", 2), tensor("b", 1), tensor("c", 3)}; }
  void save(const fs::path& directory, int64_t max_shard_bytes, const Files& others) const {
    write_checkpoint(directory, tensors(), {.max_shard_bytes = max_shard_bytes, .others = others});
  }

 private:
  StoredTensor tensor(const char* name, int64_t count) const {
    return {name, DType::kF32, {count}, reinterpret_cast<const std::byte*>(values_.data()), count * 4};
  }
  std::vector<float> values_;
};

constexpr int64_t kOneFile = 1000, kTwoShards = 12, kThreeShards = 8;  // max_shard_bytes

// The value of all weights in a directory. Nothing if it cannot be read; fails the test if there is more than one.
std::optional<float> value_in(const fs::path& directory) {
  std::optional<CheckpointReader> reader;
  if (!error_of([&] { reader.emplace(directory); }).empty()) return {};
  std::set<float> found;
  for (const auto& [name, count] : {std::pair{"a", 2}, {"b", 1}, {"c", 3}}) {
    std::vector<float> values(static_cast<size_t>(count));
    reader->copy_floats(name, std::vector<int64_t>{count}, values.data(), 1);
    found.insert(values.begin(), values.end());
  }
  EXPECT_EQ(found.size(), 1u) << "a mixture of checkpoints";
  EXPECT_EQ(reader->names(), (std::vector<std::string>{"a", "b", "c"}));
  return *found.begin();
}

std::string refusal(const fs::path& directory) {
  return error_of([&] { CheckpointReader reader(directory); });
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Checkpoint, ReproducesTheDirectoryOfTransformers) {
  const CheckpointReader reader(kSharded);
  std::vector<StoredTensor> tensors;
  std::istringstream order(contents(kSharded / "order.txt"));
  for (std::string name; std::getline(order, name);) {
    ASSERT_NE(reader.find(name), nullptr) << name;
    tensors.push_back(*reader.find(name));
  }
  ASSERT_EQ(reader.names().size(), tensors.size());
  EXPECT_EQ(reader.find("absent"), nullptr);
  const TemporaryDirectory directory;
  write_checkpoint(directory.path(), tensors,
                   {.max_shard_bytes = 2000, .others = {{"order.txt", contents(kSharded / "order.txt")}}});
  int files = 0;
  for (const auto& entry : fs::directory_iterator(kSharded)) {
    const std::string name = entry.path().filename().string();
    EXPECT_EQ(contents(directory / name), contents(entry.path())) << name;
    ++files;
  }
  EXPECT_EQ(directory.names().size(), static_cast<size_t>(files));
}

TEST(Checkpoint, AFileThatBecomesShorterIsAnError) {
  const TemporaryDirectory directory;
  const std::vector<float> values(100'000, 1.0f);
  const StoredTensor tensor{"a", DType::kF32, {100'000}, reinterpret_cast<const std::byte*>(values.data()), 400'000};
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    write_checkpoint(directory.path(), {{tensor}}, {.dtype = dtype});
    const CheckpointReader reader(directory.path());
    std::vector<float> read(values.size());
    reader.copy_floats("a", tensor.shape, read.data());
    EXPECT_EQ(read, values);
    fs::resize_file(directory / "model.safetensors", 100'000);
    const std::string error = error_of([&] { reader.copy_floats("a", tensor.shape, read.data()); });
    EXPECT_TRUE(has(error, "model.safetensors: ends at byte 100000; expected")) << error;
  }
}

TEST(Checkpoint, LinksStayAndTheirFilesAreReplaced) {
  const TemporaryDirectory directory, blobs;
  Weights(1).save(blobs.path(), kOneFile, {{"config.json", "old"}});
  for (const char* name : {"model.safetensors", "config.json"}) fs::create_symlink(blobs / name, directory / name);
  for (const int value : {2, 3}) {  // with another config, and with the same
    Weights(static_cast<float>(value)).save(directory.path(), kOneFile, {{"config.json", "new"}});
    EXPECT_EQ(value_in(directory.path()), static_cast<float>(value));
    EXPECT_EQ(value_in(blobs.path()), static_cast<float>(value));
    EXPECT_EQ(contents(blobs / "config.json"), "new");
    EXPECT_TRUE(fs::is_symlink(directory / "model.safetensors") && fs::is_symlink(directory / "config.json"));
  }
}

TEST(Checkpoint, DevicesAndPipesAreNotReplaced) {
  const TemporaryDirectory directory;
  for (const char* name : {"model.safetensors", "config.json"}) {
    fs::create_symlink("/dev/null", directory / name);
    const std::string error = error_of([&] { Weights(1).save(directory.path(), kOneFile, {{"config.json", "new"}}); });
    EXPECT_TRUE(has(error, std::string(name) + ": is no file")) << error;
    EXPECT_EQ(directory.names(), std::vector<std::string>{name});
    fs::remove(directory / name);
  }
}

TEST(Checkpoint, RoundsToTheDtypeAskedFor) {
  const TemporaryDirectory directory;
  write_checkpoint(directory / "new/deep", Weights(1.0f + 0x1p-10f).tensors(),
                   {.dtype = DType::kBf16, .max_shard_bytes = 6});
  EXPECT_EQ(value_in(directory / "new/deep"), 1.0f);
  const CheckpointReader reader(directory / "new/deep");
  EXPECT_EQ(reader.find("c")->dtype, DType::kBf16);
  EXPECT_TRUE(fs::exists(directory / "new/deep/model-00002-of-00002.safetensors"));
}

TEST(Checkpoint, CopyChecksNameAndShape) {
  const TemporaryDirectory directory;
  Weights(1).save(directory.path(), kOneFile, {});
  const CheckpointReader reader(directory.path());
  std::vector<float> out(6);
  const auto error = [&](const char* name, std::vector<int64_t> shape) {
    return error_of([&] { reader.copy_floats(name, shape, out.data()); });
  };
  EXPECT_EQ(error("a", {2}), "");
  EXPECT_TRUE(has(error("a", {2, 1}), "tensor \"a\", shape: given [2]; expected [2, 1]"));
  EXPECT_TRUE(has(error("d", {2}), "tensor \"d\": missing"));
}

TEST(Checkpoint, DisagreementsAreRefused) {
  const TemporaryDirectory directory;
  EXPECT_TRUE(has(refusal(directory / "none"), "none: expected a directory"));
  EXPECT_TRUE(has(refusal(directory.path()), "given neither model.safetensors nor model.safetensors.index.json"));

  const std::string index_name(kIndexFile), first = "model-00001-of-00003.safetensors";
  Weights(1).save(directory.path(), kThreeShards, {});
  EXPECT_EQ(value_in(directory.path()), 1.0f);
  const std::string index = contents(directory / index_name), shard = contents(directory / first);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = index;
    const size_t place = changed.find(from);
    EXPECT_NE(place, std::string::npos);
    put(directory / index_name, changed.replace(place, from.size(), to));
    return refusal(directory.path());
  };
  EXPECT_TRUE(has(with("\"a\": ", "\"d\": "), "tensor \"d\": missing"));
  EXPECT_TRUE(has(with("\"a\": \"" + first, "\"a\": \"model-00002-of-00003.safetensors"), "\"a\": missing"));
  EXPECT_TRUE(has(with("\"a\": \"" + first, "\"a\": \"nowhere.safetensors"), "nowhere.safetensors: missing"));
  EXPECT_TRUE(has(with("\"a\": \"" + first, "\"a\": \"../x"), "expected the name of a file in the same directory"));
  EXPECT_TRUE(has(with("\"a\": \"" + first + "\"", "\"a\": 1"), "expected the name of a file"));
  EXPECT_TRUE(has(with("\"a\": ", "\"b\": "), "\"b\" is given twice"));
  EXPECT_TRUE(has(with("\"weight_map\"", "\"weights\""), "weight_map: expected an object"));
  EXPECT_TRUE(has(with("{", "["), "expected JSON"));
  put(directory / index_name, "[]");
  EXPECT_TRUE(has(refusal(directory.path()), "weight_map: expected an object"));

  put(directory / index_name, index);
  EXPECT_EQ(value_in(directory.path()), 1.0f);
  put(directory / first, shard.substr(0, shard.size() - 1));
  EXPECT_TRUE(has(refusal(directory.path()), first));
  fs::remove(directory / first);
  EXPECT_TRUE(has(refusal(directory.path()), first + ": missing"));
  // A tensor that another shard holds as well.
  write_safetensors(directory / first, Weights(2).tensors(), {});
  EXPECT_TRUE(has(refusal(directory.path()), "lists it in model-0000"));
  // A tensor that the index does not know.
  put(directory / index_name, R"({"weight_map": {"a": ")" + first + "\"}}");
  EXPECT_TRUE(has(refusal(directory.path()), "tensor \"b\": given here; " + (directory / index_name).string()));
}

TEST(Checkpoint, WrongArgumentsAreRefusedBeforeAnythingIsWritten) {
  const TemporaryDirectory directory;
  const auto error = [&](std::vector<StoredTensor> tensors, const CheckpointOptions& options) {
    return error_of([&] { write_checkpoint(directory / "x", tensors, options); });
  };
  const Weights weights(1);
  std::vector<StoredTensor> twice = weights.tensors();
  twice.push_back(twice.front());
  EXPECT_TRUE(has(error(twice, {}), "tensor \"a\": given twice"));
  EXPECT_TRUE(has(error({}, {.max_shard_bytes = 0}), "max_shard_bytes: given 0"));
  for (const char* name : {"", "../x", "a/b", ".x", "model.safetensors", "model-00001-of-00002.safetensors"}) {
    EXPECT_TRUE(has(error({}, {.others = {{name, ""}}}), "others: given")) << name;
  }
  EXPECT_TRUE(directory.names().empty());
}

TEST(Checkpoint, SavesReplaceEachOtherAndLeaveNothingBehind) {
  const TemporaryDirectory directory;
  float value = 0;
  for (const int64_t size : {kOneFile, kThreeShards, kTwoShards, kTwoShards, kOneFile, kOneFile}) {
    put(directory / "model-of-mine.safetensors", "not a shard");
    Weights(++value).save(directory.path(), size, {{"config.json", "{}"}});
    EXPECT_EQ(value_in(directory.path()), value);
    const size_t weights = size == kOneFile ? 1 : size == kTwoShards ? 3 : 4;  // with the index
    EXPECT_EQ(directory.names().size(), weights + 2);
  }
}

TEST(Checkpoint, AFullDiskLeavesTheOldCheckpoint) {
  const TemporaryDirectory directory;
  for (const int64_t old_size : {kOneFile, kTwoShards, kThreeShards}) {
    Weights(1).save(directory.path(), old_size, {{"config.json", "old"}});
    const std::vector<std::string> names = directory.names();
    const FileSizeLimit limit(1000);
    for (const int64_t size : {kOneFile, kTwoShards, kThreeShards}) {
      const Weights weights(2);
      const std::vector<float> many(1000, 2.0f);
      std::vector<StoredTensor> tensors = weights.tensors();
      tensors.push_back({"d", DType::kF32, {1000}, reinterpret_cast<const std::byte*>(many.data()), 4000});
      const std::string error = error_of([&] {
        write_checkpoint(directory.path(), tensors, {.max_shard_bytes = size, .others = {{"config.json", "new"}}});
      });
      EXPECT_TRUE(has(error, "File too large")) << error;
      EXPECT_EQ(value_in(directory.path()), 1.0f);
      EXPECT_EQ(contents(directory / "config.json"), "old");
      EXPECT_EQ(directory.names(), names);
    }
  }
}

struct Replacement {
  std::string name;
  int64_t old_size, new_size;
  bool new_config;
  bool always_readable;  // the switch is a single renaming or removal
};

class Crash : public testing::TestWithParam<Replacement> {};

// Runs a save in a process that dies at call number `crash` (never if negative). True if it came to its end.
bool save_in_child(const fs::path& directory, int crash, float value, int64_t size, const Files& others) {
  const Ended ended = outcome_of_crash(crash, [&] { Weights(value).save(directory, size, others); });
  EXPECT_NE(ended, Ended::kFailed);
  return ended == Ended::kFinished;
}

// The names in a directory without those of temporaries.
std::vector<std::string> published(const TemporaryDirectory& directory) {
  std::vector<std::string> names = directory.names();
  std::erase_if(names, [](const std::string& name) { return name.starts_with("."); });
  return names;
}

TEST_P(Crash, AtAnyCallLeavesTheOldOrTheNewOrNothing) {
  const auto& [name, old_size, new_size, new_config, always_readable] = GetParam();
  const Files others = {{"config.json", new_config ? "2" : "1"}};
  std::set<std::optional<float>> outcomes;
  bool finished = false;
  int crash = 0;
  for (; !finished && crash < 100; ++crash) {
    const TemporaryDirectory directory;
    Weights(1).save(directory.path(), old_size, {{"config.json", "1"}});
    const std::vector<std::string> before = published(directory);
    finished = save_in_child(directory.path(), crash, 2, new_size, others);
    const std::optional<float> value = value_in(directory.path());
    outcomes.insert(value);
    if (value && new_config) {
      EXPECT_EQ(contents(directory / "config.json"), *value == 1 ? "1" : "2");
    }
    EXPECT_TRUE(!finished || value == 2.0f);
    // A second save, interrupted at every place as well, starts from what the first has left.
    const bool untouched = published(directory) == before;
    for (int second = 0; second < 100 && !untouched; ++second) {
      const bool done = save_in_child(directory.path(), second, 3, old_size, {{"config.json", "3"}});
      const std::optional<float> now = value_in(directory.path());
      EXPECT_TRUE(!now || !value || *now >= *value) << "an older checkpoint came back";
      if (now && (now != 2.0f || new_config)) {
        EXPECT_EQ(contents(directory / "config.json"), std::to_string(static_cast<int>(*now)));
      }
      if (done) break;
    }
    Weights(4).save(directory.path(), new_size, {{"config.json", "4"}});
    EXPECT_EQ(value_in(directory.path()), 4.0f);
    const size_t weights = new_size == kOneFile ? 1 : new_size == kTwoShards ? 3 : 4;
    EXPECT_EQ(directory.names().size(), weights + 1) << "the next save cleans up";
  }
  EXPECT_TRUE(finished);
  EXPECT_GT(crash, 5);
  EXPECT_TRUE(outcomes.contains(1.0f));
  EXPECT_TRUE(outcomes.contains(2.0f));
  EXPECT_EQ(outcomes.contains(std::nullopt), !always_readable);
}

TEST_P(Crash, OfTheMachineLeavesNoMixtureEither) {
  const auto& [name, old_size, new_size, new_config, always_readable] = GetParam();
  const TemporaryDirectory directory;
  Weights(1).save(directory.path(), old_size, {{"config.json", "1"}});
  const PowerLoss watch;
  Weights(2).save(directory.path(), new_size, {{"config.json", new_config ? "2" : "1"}});
  EXPECT_EQ(watch.complaints(), std::vector<std::string>());
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, Crash,
                         testing::Values(Replacement{"one_file", kOneFile, kOneFile, false, true},
                                         Replacement{"one_file_and_config", kOneFile, kOneFile, true, false},
                                         Replacement{"one_file_by_shards", kOneFile, kTwoShards, false, true},
                                         Replacement{"shards_by_one_file", kTwoShards, kOneFile, false, true},
                                         Replacement{"shards_by_more_shards", kTwoShards, kThreeShards, false, true},
                                         Replacement{"shards_by_as_many", kTwoShards, kTwoShards, false, false},
                                         Replacement{"shards_by_one_and_config", kThreeShards, kOneFile, true, false}),
                         [](const testing::TestParamInfo<Replacement>& test) { return test.param.name; });

}  // namespace
}  // namespace deltanet::test
