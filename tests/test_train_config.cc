// Training configs: recipes, files, overrides, and errors that help.

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "deltanet/rows.h"
#include "model/layout.h"
#include "temporary_directory.h"
#include "train/train_config.h"

namespace deltanet::test {
namespace {

TrainConfig read(const std::string& text) {
  TrainConfig config;
  read_toml(text, "run.toml", config);
  return config;
}

std::string error_of_text(const std::string& text) {
  return error_of([&] { read(text); });
}

std::string error_of_set(const std::string& assignment) {
  TrainConfig config;
  return error_of([&] { set_key(assignment, config); });
}

TEST(TrainConfig, DefaultsAreThePapers) {
  const TrainConfig config;
  EXPECT_EQ(config.sequence_length * config.batch_size, 524288);
  EXPECT_EQ(toml_text(recipe("340m")), toml_text(read("model = \"pgdn-340m\"")));
  TrainConfig large = recipe("1b");
  EXPECT_EQ(large.steps, 95000);
  EXPECT_EQ(large.model, "pgdn-1b");
}

// The values of docs/training.md: the paper's recipe, and how often something is written.
TEST(TrainConfig, KeysThatNobodySetsHaveTheDocumentedValues) {
  const std::vector<std::pair<std::string, std::string>> expected = {{"model", "\"\""},
                                                                     {"init_from", "\"\""},
                                                                     {"vocab_size", "0"},
                                                                     {"data", "\"\""},
                                                                     {"eval_data", "\"\""},
                                                                     {"tokenizer", "\"\""},
                                                                     {"document_boundaries", "false"},
                                                                     {"sequence_length", "2048"},
                                                                     {"batch_size", "256"},
                                                                     {"micro_batch", "0"},
                                                                     {"seed", "0"},
                                                                     {"steps", "30000"},
                                                                     {"lr", "4e-04"},
                                                                     {"min_lr_ratio", "0.1"},
                                                                     {"warmup", "1024"},
                                                                     {"schedule", "\"cosine\""},
                                                                     {"decay_part", "0.2"},
                                                                     {"beta1", "0.9"},
                                                                     {"beta2", "0.95"},
                                                                     {"eps", "1e-08"},
                                                                     {"weight_decay", "0.01"},
                                                                     {"clip", "1.0"},
                                                                     {"precision", "\"bf16\""},
                                                                     {"recompute", "false"},
                                                                     {"max_bad_steps", "10"},
                                                                     {"threads", "0"},
                                                                     {"out", "\"\""},
                                                                     {"log_every", "10"},
                                                                     {"eval_every", "1000"},
                                                                     {"eval_batches", "4"},
                                                                     {"eval_tasks", "\"\""},
                                                                     {"eval_tasks_data", "\"\""},
                                                                     {"eval_tasks_every", "0"},
                                                                     {"eval_tasks_limit", "0"},
                                                                     {"checkpoint_every", "1000"},
                                                                     {"keep_checkpoints", "3"},
                                                                     {"tensorboard", "true"}};
  EXPECT_EQ(key_values(TrainConfig()), expected);
}

// What a resumed run may not change, because its losses would: everything but names of files, the length and how often
// something is written.
TEST(TrainConfig, WhatAResumedRunMustShare) {
  std::vector<std::string> shared;
  for (const auto& [key, value] : key_values(TrainConfig(), /*identity=*/true)) shared.push_back(key);
  EXPECT_EQ(shared, (std::vector<std::string>{"document_boundaries", "sequence_length", "batch_size", "micro_batch",
                                              "seed", "lr", "min_lr_ratio", "warmup", "schedule", "decay_part", "beta1",
                                              "beta2", "eps", "weight_decay", "clip", "precision", "eval_batches"}));
}

TEST(TrainConfig, EveryKeyHasAPlaceOfItsOwn) {
  const auto before = key_values(TrainConfig());
  for (std::size_t i = 0; i < before.size(); ++i) {
    const auto& [key, value] = before[i];
    const bool is_text = value.starts_with("\"");
    const std::string given = key == "schedule"                         ? "wsd"
                              : key == "precision"                      ? "f32"
                              : is_text                                 ? "other"
                              : value == "true"                         ? "false"
                              : value == "false"                        ? "true"
                              : value.find_first_of(".e") != value.npos ? "0.25"
                                                                        : "17";
    TrainConfig config;
    set_key(key + "=" + given, config);
    auto expected = before;
    expected[i].second = is_text ? "\"" + given + "\"" : given;
    EXPECT_EQ(key_values(config), expected) << key;
  }
}

TEST(TrainConfig, ReachesTheScheduleAndTheOptimizer) {
  const TrainConfig config = read(
      "steps = 70\nlr = 0.5\nmin_lr_ratio = 0.25\nwarmup = 7\nschedule = \"wsd\"\ndecay_part = 0.375\n"
      "beta1 = 0.75\nbeta2 = 0.625\neps = 0.125\nweight_decay = 0.0625\n");
  const Schedule schedule = config.schedule_of_steps();
  EXPECT_EQ(schedule.kind, ScheduleKind::kWsd);
  EXPECT_EQ(schedule.peak, 0.5);
  EXPECT_EQ(schedule.end_ratio, 0.25);
  EXPECT_EQ(schedule.warmup, 7);
  EXPECT_EQ(schedule.steps, 70);
  EXPECT_EQ(schedule.decay_part, 0.375);
  const AdamWOptions adamw = config.adamw();
  EXPECT_EQ(adamw.beta1, 0.75);
  EXPECT_EQ(adamw.beta2, 0.625);
  EXPECT_EQ(adamw.eps, 0.125);
  EXPECT_EQ(adamw.weight_decay, 0.0625);
}

// Passes of 4096 tokens unless something else is asked for, and never more than a step has.
TEST(TrainConfig, SequencesOfAPass) {
  TrainConfig config;
  for (const auto& [length, batch, micro, passes] : {std::tuple{2048, 256, 0, 2},
                                                     {1000, 256, 0, 4},
                                                     {4097, 256, 0, 1},
                                                     {8, 256, 0, 256},
                                                     {2048, 1, 0, 1},
                                                     {2048, 256, 7, 7},
                                                     {2048, 5, 7, 5}}) {
    config.sequence_length = length;
    config.batch_size = batch;
    config.micro_batch = micro;
    EXPECT_EQ(config.sequences_per_pass(), passes) << length << " " << batch << " " << micro;
  }
}

TEST(TrainConfig, RecipesExistForAllRows) {
  for (const Row& row : rows()) {
    for (const std::string& name : recipe_names()) {
      const TrainConfig config = recipe(std::string(row.name) + "-" + name);
      EXPECT_EQ(config.model_config().row, row.name) << name;
      EXPECT_EQ(toml_text(config).size(), toml_text(recipe(name)).size() - 4 + row.name.size());
    }
  }
  EXPECT_NE(error_of([] { recipe("pgdn-7t"); }).find("tiny-5m"), std::string::npos);
  EXPECT_NE(error_of([] { recipe("pgdm-340m"); }).find("pgdn"), std::string::npos);
}

TEST(TrainConfig, SmallModelsHaveTheSizeOfTheirName) {
  EXPECT_NEAR(static_cast<double>(Layout(recipe("tiny-5m").model_config()).parameter_count()), 5e6, 0.5e6);
  EXPECT_NEAR(static_cast<double>(Layout(recipe("small-25m").model_config()).parameter_count()), 25e6, 2.5e6);
}

TEST(TrainConfig, FilesAndOverridesAreRead) {
  TrainConfig config = read("steps = 7\nlr = 1\nschedule = \"wsd\"\nrecompute = true\n");
  EXPECT_EQ(config.steps, 7);
  EXPECT_EQ(config.lr, 1.0);
  EXPECT_EQ(config.schedule_of_steps().kind, ScheduleKind::kWsd);
  EXPECT_TRUE(config.recompute);
  set_key("steps=12", config);
  set_key("lr = 3e-4", config);
  set_key("data=a b=c.txt", config);
  set_key("recompute=false", config);
  EXPECT_EQ(config.steps, 12);
  EXPECT_EQ(config.lr, 3e-4);
  EXPECT_EQ(config.data, "a b=c.txt");
  EXPECT_FALSE(config.recompute);
}

TEST(TrainConfig, TextReadsBackTheSame) {
  TrainConfig config = recipe("tiny-5m");
  config.data = "quote\" and \\ and \xc3\xa9";
  config.lr = 1.0 / 3.0;
  const std::string text = toml_text(config);
  EXPECT_EQ(toml_text(read(text)), text);
  const std::string table = toml_text(read("steps = 3\n[model]\nmodel_type = \"gated_deltanet\"\nhidden_size = 64\n"));
  EXPECT_EQ(toml_text(read(table)), table);
  EXPECT_NE(table.find("hidden_size = 64"), std::string::npos);
}

TEST(TrainConfig, ModelTablesAndVocabularies) {
  TrainConfig config = read(
      "vocab_size = 300\n[model]\nmodel_type = \"dgps\"\nrow = \"pgdn\"\nhidden_size = 64\nnum_hidden_layers = 2\n"
      "num_heads = 2\nhead_dim = 32\nvocab_size = 256\n");
  EXPECT_EQ(config.model_config().vocab_size, 300);
  EXPECT_EQ(config.model_config().hidden_size, 64);
  set_key("model=gdn-5m", config);
  EXPECT_EQ(config.model_config().row, "gdn");
  set_key("vocab_size=0", config);
  EXPECT_EQ(config.model_config().vocab_size, 256);
}

TEST(TrainConfig, FieldsOfTheModelMayBeSet) {
  TrainConfig config = recipe("pgdn-tiny-5m");
  set_key("model.allow_neg_eigval=true", config);
  EXPECT_TRUE(config.model_config().allow_neg_eigval);
  set_key("model.squash_x = 1.25", config);
  TrainConfig again;
  read_toml(toml_text(config), "config.toml", again);
  EXPECT_TRUE(again.model_config().allow_neg_eigval);
  EXPECT_EQ(again.model_config().spec.x, 1.25);

  config = recipe("pgdn_tanh-tiny-5m");  // a row whose options are nested
  set_key("model.spec.x=1.1", config);
  set_key("model.spec.squash=fast", config);
  read_toml(toml_text(config), "config.toml", again);
  EXPECT_EQ(again.model_config().spec.x, 1.1);
  EXPECT_EQ(toml_text(again), toml_text(config));

  config = recipe("pgdn-tiny-5m");
  set_key("model.squash_y=1.25", config);
  const std::string error = error_of([&] { config.model_config(); });
  EXPECT_NE(error.find("unknown field \"squash_y\"; did you mean \"squash_"), std::string::npos) << error;
  EXPECT_NE(error_of_set("model.=1"), "");

  // A config.json from elsewhere has fields of its own, which stay; those that are set must be ours, also inside.
  const TemporaryDirectory folder;
  put(folder / "config.json",
      R"({"model_type": "gated_deltanet", "hidden_size": 64, "num_hidden_layers": 2, "num_heads": 2, "head_dim": 32,
          "vocab_size": 64, "transformers_version": "4.57"})");
  config = TrainConfig();
  config.model = (folder / "config.json").string();
  config.vocab_size = 300;
  EXPECT_EQ(config.model_config().vocab_size, 300);
  EXPECT_NE(config.model_config().source.find("4.57"), std::string::npos);
  set_key("model.attn.layers=[0]", config);
  set_key("model.attn.num_heads=2", config);
  EXPECT_EQ(config.model_config().attention.size(), 1u);
  set_key("model.attn.windowsize=3", config);
  EXPECT_NE(error_of([&] { config.model_config(); }).find("did you mean \"window_size\""), std::string::npos);
}

TEST(TrainConfig, UnknownFieldsOfAModelTableSuggestTheNearest) {
  const TrainConfig config = read(
      "[model]\nmodel_type = \"dgps\"\nrow = \"gdn\"\nhidden_size = 64\nnum_hidden_layers = 2\nnum_heads = 2\n"
      "head_dim = 32\nintermediat_size = 64\nvocab_size = 64\n");
  const std::string error = error_of([&] { config.model_config(); });
  EXPECT_NE(error.find("did you mean \"intermediate_size\""), std::string::npos) << error;
}

TEST(TrainConfig, UnknownKeysSuggestTheNearest) {
  EXPECT_NE(error_of_text("batchsize = 3").find("\"batch_size\""), std::string::npos);
  EXPECT_NE(error_of_text("[optimizer]\nlr = 1").find("unknown key"), std::string::npos);
  EXPECT_NE(error_of_set("sequence_lenght=3").find("\"sequence_length\""), std::string::npos);
}

TEST(TrainConfig, WrongValuesAreNamed) {
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"steps = \"many\"", "given 'many'; expected an integer"},
           {"steps = 1.5", "steps"},
           {"batch_size = 0", "from 1 to"},
           {"lr = -1", "lr"},
           {"lr = nan", "lr"},
           {"precision = \"fp8\"", "f32 or bf16"},
           {"recompute = 1", "true or false"},
           {"schedule = [1]", "cosine, constant or wsd"},
           {"steps = \n", "line 1"},
           {"steps = 1\nsteps = 2", "line 2"},
       }) {
    const std::string error = error_of_text(text);
    EXPECT_NE(error.find(part), std::string::npos) << text << ": " << error;
    EXPECT_NE(error.find("run.toml"), std::string::npos) << text << ": " << error;
  }
  for (const char* text : {"steps", "=3", "steps=", "steps=1\nlr=2", "out=\xff"})
    EXPECT_NE(error_of_set(text), "") << text;
  EXPECT_NE(error_of_set("lr=abc").find("lr: given \"abc\"; expected a number from 0"), std::string::npos);
}

// Integers that no double equals, up to the largest one.
TEST(TrainConfig, LargeIntegersAreNotTakenAsZero) {
  for (const char* key : {"lr", "clip", "eps", "weight_decay", "beta1", "min_lr_ratio"}) {
    for (const char* number : {"9223372036854775807", "9007199254740993", "-9223372036854775808"}) {
      const std::string error = error_of_set(std::string(key) + "=" + number);
      EXPECT_NE(error.find(std::string(key) + ": given " + number + "; expected a number from"), std::string::npos)
          << error;
    }
  }
  EXPECT_NE(error_of_set("steps=9223372036854775807").find("expected an integer from"), std::string::npos);
  EXPECT_EQ(read("clip = 1000000000").clip, 1e9);
  EXPECT_EQ(read("lr = 0").lr, 0);
}

TEST(TrainConfig, TheEndsOfRangesAreInside) {
  for (const auto& [inside, outside] : std::vector<std::pair<std::string, std::string>>{
           {"batch_size=1", "batch_size=0"},
           {"batch_size=16777216", "batch_size=16777217"},
           {"sequence_length=1", "sequence_length=0"},
           {"min_lr_ratio=1", "min_lr_ratio=1.0000001"},
           {"beta1=0.999999", "beta1=1"},
           {"beta2=0.999999", "beta2=1"},
           {"lr=1e3", "lr=1001"},
           {"eps=1e-30", "eps=0"},
           {"decay_part=0", "decay_part=-0.1"},
           {"clip=0", "clip=-1"},
           {"max_bad_steps=1", "max_bad_steps=0"},
           {"threads=4096", "threads=4097"},
           {"eval_every=0", "eval_every=-1"},
           {"eval_batches=1", "eval_batches=0"},
           {"keep_checkpoints=1", "keep_checkpoints=0"},
           {"vocab_size=0", "vocab_size=-1"},
           {"seed=0", "seed=-1"},
       }) {
    EXPECT_EQ(error_of_set(inside), "");
    EXPECT_NE(error_of_set(outside), "") << outside;
  }
}

// A checkpoint brings its model: another one beside it is refused instead of ignored.
TEST(TrainConfig, AModelBesideACheckpointIsRefused) {
  const TemporaryDirectory folder;
  put(folder / "config.json",
      R"({"model_type": "gated_deltanet", "hidden_size": 64, "num_hidden_layers": 2, "num_heads": 2, "head_dim": 32,
          "vocab_size": 64})");
  const std::string from = "init_from=" + folder.path().string();
  const auto config_of = [&](const std::vector<std::string>& assignments, bool from_recipe = true) {
    TrainConfig config = from_recipe ? recipe("tiny-5m") : TrainConfig();
    set_keys(assignments, config);
    config.out = "run";
    return config;
  };
  const TrainConfig tuned = config_of({from, "lr=1e-4", "model.norm_eps=0.5"});
  EXPECT_EQ(error_of([&] { validate(tuned); }), "");
  EXPECT_EQ(tuned.model, "");
  EXPECT_EQ(tuned.model_config().hidden_size, 64);
  EXPECT_EQ(tuned.model_config().norm_eps, 0.5);
  TrainConfig again;
  read_toml(toml_text(tuned), "config.toml", again);
  EXPECT_EQ(error_of([&] { validate(again); }), "");
  for (const auto& [beside, is_refused] : std::vector<std::pair<std::vector<std::string>, bool>>{
           {{from, "model=gdn-5m"}, true},
           {{"model=gdn-5m", from}, true},
           {{"model = gdn-5m", "init_from = " + folder.path().string()}, true},
           {{"init_from=elsewhere", "init_from=", "model=gdn-5m"}, false},
           {{from}, false},
       }) {
    const std::string error = error_of([&] { validate(config_of(beside)); });
    EXPECT_EQ(error.find("[train] model: given \"gdn-5m\" beside init_from = ") != std::string::npos, is_refused)
        << beside.front() << ": " << error;
    EXPECT_EQ(error.empty(), !is_refused) << error;
  }
  const std::string table =
      "[model]\nmodel_type = \"gated_deltanet\"\nhidden_size = 64\nnum_hidden_layers = 1\n"
      "num_heads = 2\nhead_dim = 32\nvocab_size = 64\n";
  TrainConfig both = read("out = \"run\"\ninit_from = \"" + folder.path().string() + "\"\n" + table);
  EXPECT_NE(error_of([&] { validate(both); }).find("model: given as a table beside init_from"), std::string::npos);
  both = read("out = \"run\"\n" + table);
  set_keys({from}, both);
  EXPECT_EQ(error_of([&] { validate(both); }), "");
  EXPECT_EQ(both.model_config().num_hidden_layers, 2);
}

TEST(TrainConfig, RelationsAreChecked) {
  TrainConfig config = recipe("tiny-5m");
  EXPECT_NE(error_of([&] { validate(config); }).find("out"), std::string::npos);
  config.out = "run";
  EXPECT_EQ(error_of([&] { validate(config); }), "");
  config.steps = 0;
  EXPECT_NE(error_of([&] { validate(config); }).find("steps"), std::string::npos);
  config.steps = 1'000'000'000'000'000;
  config.batch_size = 1 << 20;
  EXPECT_NE(error_of([&] { validate(config); }).find("2^63 tokens"), std::string::npos);
  config.steps = 1;
  config.data = "\xff";
  EXPECT_NE(error_of([&] { validate(config); }).find("data: given text that is not UTF-8"), std::string::npos);
  config.model = "";
  EXPECT_NE(error_of([&] { validate(config); }).find("model"), std::string::npos);
}

TEST(TrainConfig, PresetsCountMoreThanFoldersOfTheirName) {
  const TemporaryDirectory folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  std::filesystem::create_directory("pgdn-5m");  // of a run
  EXPECT_EQ(error_of([] { recipe("tiny-5m").model_config(); }), "");
  put("config.json", "{}");  // nobody asked for it
  EXPECT_NE(error_of([] { TrainConfig().model_config(); }).find("model: not given"), std::string::npos);
  std::filesystem::current_path(before);
}

}  // namespace
}  // namespace deltanet::test
