// What a model remembers: saved and loaded bit for bit, refused where it does not belong, the same for a batch as for
// each sequence alone, and for a prompt in blocks as for one pass.

#include "model/state.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/file.h"
#include "deltanet/error.h"
#include "deltanet/model.h"
#include "deltanet/optimizer.h"
#include "deltanet/rows.h"
#include "model_fixture.h"

namespace deltanet::test {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int32_t>;

constexpr int32_t kVocab = 40;
constexpr int64_t kLargestFile = 1 << 26;

std::string config_of(const std::string& type, const std::string& more = "") {
  return "{" + type + R"(, "hidden_size": 32, "num_hidden_layers": 3, "num_heads": 2, "head_dim": 16,
         "vocab_size": 40, "intermediate_size": 48, "tie_word_embeddings": true, "initializer_range": 0.15)" +
         more + "}";
}

std::string row_config_of(const std::string& row, const std::string& more = "") {
  return config_of(R"("model_type": "dgps", "expand_v": 1.0, "row": ")" + row + "\"", more);
}

struct Case {
  std::string name, config;
};

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const Row& row : rows()) list.push_back({std::string(row.name), row_config_of(std::string(row.name))});
  list.push_back({"hybrid", row_config_of("pgdn", R"(, "attn": [{"layers": [0], "num_heads": 4, "num_kv_heads": 2},
                                                       {"layers": [2], "num_heads": 2, "window_size": 5}])")});
  list.push_back({"transformer", config_of(R"("model_type": "transformer")")});
  list.push_back({"pkda_grouped", config_of(R"("model_type": "precond_kda", "num_v_heads": 4)")});
  list.push_back({"no_conv", row_config_of("gdn", R"(, "use_short_conv": false)")});
  return list;
}

Ids ids_of(int count, int seed) {
  Ids ids;
  for (int i = 0; i < count; ++i) ids.push_back((i * i + seed * 7 + i) % kVocab);
  return ids;
}

std::vector<float> read(Session& session, const std::vector<Ids>& prompts) {
  std::vector<float> logits(prompts.size() * kVocab);
  session.read(prompts, logits.data());
  return logits;
}

// Greedy continuations; sequence n ends after lengths[n] tokens.
std::vector<Ids> generate(Session& session, const std::vector<Ids>& prompts, const std::vector<std::size_t>& lengths) {
  std::vector<Ids> said(prompts.size());
  GenerateOptions options;
  options.max_tokens = 1000;
  session.generate(prompts, options, [&](int64_t n, int32_t id) {
    said[n].push_back(id);
    return said[n].size() < lengths[n];
  });
  return said;
}

class StateFiles : public testing::Test {
 protected:
  StateFiles() : folder_(fs::temp_directory_path() / ("deltanet_state." + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~StateFiles() override { fs::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }

 private:
  fs::path folder_;
};

class EveryState : public StateFiles, public testing::WithParamInterface<Case> {
 protected:
  Model model_ = Model::from_config(GetParam().config, 1, {.threads = 1});
};

TEST_P(EveryState, SurvivesAFileBitForBit) {
  Session session = model_.start(2);
  read(session, {ids_of(9, 1), ids_of(23, 2)});
  generate(session, {ids_of(1, 3), ids_of(2, 4)}, {3, 3});  // leaves a token that is yet to be read
  session.save(path("a"));
  Session loaded = model_.load_session(path("a"));
  loaded.save(path("b"));
  EXPECT_EQ(read_file(path("a"), kLargestFile), read_file(path("b"), kLargestFile));
  EXPECT_EQ(loaded.bytes(), session.bytes());
  for (int step = 0; step < 9; ++step) {  // past the window
    EXPECT_EQ(read(session, {ids_of(1, step), ids_of(2, step)}), read(loaded, {ids_of(1, step), ids_of(2, step)}));
  }
}

TEST_P(EveryState, UnusedAndResetSessionsAreFresh) {
  Session session = model_.start();
  session.save(path("empty"));
  const std::vector<float> expected = read(session, {ids_of(30, 1)});
  Session loaded = model_.load_session(path("empty"));
  EXPECT_EQ(read(loaded, {ids_of(30, 1)}), expected);
  session.reset();
  EXPECT_EQ(read(session, {ids_of(30, 1)}), expected);
}

// Sequences that end early leave the batch; what they remember is that of their own end.
TEST_P(EveryState, SequencesThatEndEarlyGoOnLater) {
  const std::vector<Ids> prompts = {ids_of(7, 1), ids_of(31, 2), ids_of(1, 3), ids_of(12, 4)};
  const std::vector<std::size_t> first = {4, 1, 9, 6}, second = {3, 5, 2, 7};
  Session batch = model_.start(4);
  const std::vector<Ids> said = generate(batch, prompts, first);
  const std::vector<Ids> later = generate(batch, std::vector<Ids>(4), second);
  for (std::size_t n = 0; n < prompts.size(); ++n) {
    Session alone = model_.start();
    const std::size_t all = first[n] + second[n];
    Ids together = said[n];
    together.insert(together.end(), later[n].begin(), later[n].end());
    EXPECT_EQ(generate(alone, {prompts[n]}, {all}).front(), together) << "sequence " << n;
  }
}

TEST_P(EveryState, CopiesGoOnByThemselves) {
  Session session = model_.start(2);
  read(session, {ids_of(9, 1), ids_of(23, 2)});
  const int64_t from[] = {1, 0, 1};
  Session copies = session.copy(from);
  const Ids a = ids_of(6, 3), b = ids_of(4, 4);
  const std::vector<float> copied = read(copies, {a, b, a});
  read(copies, {b, b, b});  // the original must not notice
  const std::vector<float> original = read(session, {b, a});
  for (int i = 0; i < kVocab; ++i) {
    EXPECT_NEAR(copied[i], original[kVocab + i], 1e-5);
    EXPECT_NEAR(copied[kVocab + i], original[i], 1e-5);
    EXPECT_NEAR(copied[2 * kVocab + i], original[kVocab + i], 1e-5);
  }
}

TEST_P(EveryState, ScoresAfterAPrefixAsInOnePass) {
  const Packed whole({ids_of(19, 1), ids_of(12, 2)});
  std::vector<double> expected(31), scored(9);
  bool expected_greedy[31], greedy[9];
  model_.log_probs(whole.ids, whole.next(), whole.offsets, expected.data(), expected_greedy);
  Session session = model_.start(2);
  read(session, {{whole.ids.begin(), whole.ids.begin() + 14}, {whole.ids.begin() + 19, whole.ids.begin() + 27}});
  const Packed rest({{whole.ids.begin() + 14, whole.ids.begin() + 19}, {whole.ids.begin() + 27, whole.ids.end()}});
  session.log_probs(rest.ids, rest.next(), rest.offsets, scored.data(), greedy);
  for (int i = 0; i < 9; ++i) {
    const int place = i < 5 ? 14 + i : 22 + i;
    EXPECT_NEAR(scored[i], expected[place], 1e-5) << i;
    EXPECT_EQ(greedy[i], expected_greedy[place]) << i;
  }
}

// Also where the stream is left and the session goes on in another way.
TEST_P(EveryState, StreamsWhatItGenerates) {
  GenerateOptions options;
  options.max_tokens = 12;
  options.sampling = {.temperature = 1.0, .top_k = 20, .repetition_penalty = 1.3, .seed = 5};
  Ids generated;
  model_.start().generate(std::vector<Ids>{ids_of(7, 1)}, options, [&](int64_t, int32_t id) {
    generated.push_back(id);
    return true;
  });
  Session session = model_.start();
  Ids streamed;
  TokenStream stream = session.stream(ids_of(7, 1), options);
  while (const auto id = stream.next()) streamed.push_back(*id);
  EXPECT_EQ(streamed, generated);

  session.reset();
  TokenStream left = session.stream(ids_of(7, 1), {.max_tokens = 1000});
  Ids greedy;
  for (int i = 0; i < 3; ++i) greedy.push_back(left.next().value());
  const Ids rest = generate(session, {{}}, {4}).front();
  greedy.insert(greedy.end(), rest.begin(), rest.end());
  Session alone = model_.start();
  EXPECT_EQ(greedy, generate(alone, {ids_of(7, 1)}, {7}).front());
}

INSTANTIATE_TEST_SUITE_P(Rows, EveryState, testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

class LongPrompts : public StateFiles, public testing::WithParamInterface<Case> {
 protected:
  Model model_ = Model::from_config(GetParam().config, 1, {.threads = 1});
};

TEST_P(LongPrompts, BlocksEqualOnePass) {
  const std::vector<Ids> prompts = {ids_of(4500, 1), ids_of(3, 2), ids_of(2049, 3)};
  const Packed batch(prompts);
  std::vector<float> whole(batch.ids.size() * kVocab);
  model_.logits(batch.ids, batch.offsets, whole.data());
  Session session = model_.start(3), single = model_.start();
  const std::vector<float> blocks = read(session, prompts);
  for (std::size_t n = 0; n < prompts.size(); ++n) {
    const float* expected = whole.data() + (batch.offsets[n + 1] - 1) * kVocab;
    const std::vector<float> got(blocks.begin() + n * kVocab, blocks.begin() + (n + 1) * kVocab);
    EXPECT_LE(relative_error(got, {expected, expected + kVocab}), 1e-5) << "sequence " << n;
  }
  EXPECT_EQ(read(single, {prompts[0]}), std::vector<float>(blocks.begin(), blocks.begin() + kVocab));
}

TEST_P(LongPrompts, AWrongIdInALaterBlockChangesNothing) {
  Session session = model_.start(2);
  read(session, {ids_of(5, 1), ids_of(6, 2)});
  session.save(path("before"));
  std::vector<Ids> prompts = {ids_of(3000, 1), ids_of(3000, 2)};
  prompts[1].back() = kVocab;
  EXPECT_THROW(read(session, prompts), Error);
  session.save(path("after"));
  EXPECT_EQ(read_file(path("before"), kLargestFile), read_file(path("after"), kLargestFile));
}

INSTANTIATE_TEST_SUITE_P(Rows, LongPrompts, testing::ValuesIn([] {
                           std::vector<Case> list;
                           for (const Case& one : cases()) {
                             for (const char* name : {"pgdn", "kda", "mesa", "hybrid", "no_conv"}) {
                               if (one.name == name) list.push_back(one);
                             }
                           }
                           return list;
                         }()),
                         [](const auto& test) { return test.param.name; });

// ---- what is refused

std::string complaint(const std::function<void()>& call) {
  try {
    call();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST_F(StateFiles, OfAnotherModelAreRefused) {
  // Nothing but the matrices tells these two apart.
  const std::string config = config_of(R"("model_type": "delta_net")", R"(, "use_short_conv": false)");
  for (const WeightType type : {WeightType::kFloat32, WeightType::kBfloat16, WeightType::kInt8}) {
    Model model = Model::from_config(config, 1, {.weights = type});
    model.start().save(path("state"));
    for (const WeightType other : {WeightType::kFloat32, WeightType::kBfloat16, WeightType::kInt8}) {
      EXPECT_EQ(Model::from_config(config, 1, {.weights = other}).load_session(path("state")).sequences(), 1);
      Model stranger = Model::from_config(config, 2, {.weights = other});
      const std::string text = complaint([&] { stranger.load_session(path("state")); });
      EXPECT_NE(text.find("another model"), text.npos) << text;
      EXPECT_NE(text.find(path("state")), text.npos) << text;
    }
  }
  Model changed = Model::from_config(config, 1);
  std::vector<float> values = changed.parameter("model.embeddings.weight");
  values[0] += 1.0f;
  changed.set_parameter("model.embeddings.weight", values);
  EXPECT_THROW(changed.load_session(path("state")), Error);
  // Nor do vectors go by unnoticed, the last one included.
  for (const char* name : {"model.layers.0.attn_norm.weight", "model.norm.weight"}) {
    Model other = Model::from_config(config, 1);
    values = other.parameter(name);
    values.back() *= 1.001f;
    other.set_parameter(name, values);
    EXPECT_THROW(other.load_session(path("state")), Error) << name;
  }
}

// Models with the same parameters whose configs differ in what changes results.
TEST_F(StateFiles, OfAModelThatComputesOtherwiseAreRefused) {
  const std::string attention = R"(, "attn": {"layers": [1], "num_heads": 2, "window_size": 5, "rope_theta": 1e4)";
  const std::string gated = config_of(R"("model_type": "gated_deltanet", "expand_v": 1.0, "use_gate": true)");
  const auto change = [&](std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
  };
  const std::string plain = row_config_of("pgdn", attention + "}");
  const std::vector<std::pair<std::string, std::string>> others = {
      {plain, row_config_of("pgdn", attention + R"(}, "allow_neg_eigval": true)")},
      {plain, row_config_of("pgdn", attention + R"(}, "norm_eps": 1e-3)")},
      {plain, row_config_of("pgdn", attention + R"(}, "spec": {"x": 2})")},
      {plain, row_config_of("pgdn", attention + R"(}, "spec": {"l2norm": false})")},
      {plain, change(plain, "1e4", "1e5")},
      {plain, change(plain, R"("window_size": 5)", R"("window_size": 6)")},
      {gated, change(gated, R"("use_gate": true)", R"("use_gate": true, "output_gate_activation": "sigmoid")")},
  };
  for (const auto& [config, other] : others) {
    Model model = Model::from_config(config, 1), same = Model::from_config(config, 1);
    model.start().save(path("state"));
    EXPECT_EQ(same.load_session(path("state")).sequences(), 1);
    Model stranger = Model::from_config(other, 1);
    for (const ParameterInfo& info : model.parameters()) {
      ASSERT_EQ(model.parameter(info.name), stranger.parameter(info.name));
    }
    EXPECT_NE(complaint([&] { stranger.load_session(path("state")); }).find("another model"), std::string::npos)
        << other;
  }
}

TEST_F(StateFiles, FitTheModelUntilAStepChangesIt) {
  const std::string config = row_config_of("gdn");
  for (const WeightType type : {WeightType::kFloat32, WeightType::kBfloat16}) {
    Model model = Model::from_config(config, 1, {.weights = type});
    model.start().save(path("state"));
    Optimizer optimizer(model);  // makes float32 values of bf16 weights, and changes none
    EXPECT_EQ(model.load_session(path("state")).sequences(), 1);
    const Ids ids = ids_of(8, 1);
    const Ids targets = ids_of(8, 2);
    const int64_t offsets[] = {0, 8};
    optimizer.step(ids, targets, offsets, {.lr = 0.1});
    EXPECT_THROW(model.load_session(path("state")), Error);
  }
}

TEST_F(StateFiles, OfEarlierVersionsAreNamed) {
  Model model = Model::from_config(row_config_of("gdn"), 1);
  model.start().save(path("state"));
  std::string bytes = read_file(path("state"), kLargestFile);
  const std::string now = "deltanet state 2";
  ASSERT_NE(bytes.find(now), bytes.npos);
  bytes.replace(bytes.find(now), now.size(), "deltanet state 1");
  std::ofstream(path("state"), std::ios::binary) << bytes;
  EXPECT_NE(complaint([&] { model.load_session(path("state")); }).find("written by an earlier version"),
            std::string::npos);
}

TEST_F(StateFiles, FitWeightsOfAnotherTypeOfTheSameCheckpoint) {
  const std::string directory = std::string(DELTANET_SOURCE_DIR) + "/tests/golden/models/pgdn";
  Model model = Model::load(directory);
  std::vector<float> expected(static_cast<std::size_t>(model.vocab_size())), logits(expected.size());
  Session session = model.start();
  session.read({{ids_of(20, 1)}}, expected.data());
  session.save(path("state"));
  session.read({{ids_of(1, 2)}}, expected.data());
  for (const WeightType type : {WeightType::kBfloat16, WeightType::kInt8}) {
    Model narrow = Model::load(directory, {.weights = type});
    narrow.load_session(path("state")).read({{ids_of(1, 2)}}, logits.data());
    EXPECT_LE(relative_error(logits, {expected.begin(), expected.end()}), 6e-2);
  }
}

TEST_F(StateFiles, DamagedOnesAreRefused) {
  Model model = Model::from_config(cases()[0].config, 1);
  Session session = model.start(2);
  read(session, {ids_of(5, 1), ids_of(6, 2)});
  session.save(path("good"));
  const std::string good = read_file(path("good"), kLargestFile);
  const auto refused = [&](const std::string& bytes) {
    std::ofstream(path("bad"), std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return !complaint([&] { model.load_session(path("bad")); }).empty();
  };
  EXPECT_FALSE(refused(good));
  for (const std::size_t left : {std::size_t{0}, std::size_t{7}, good.size() / 2, good.size() - 1}) {
    EXPECT_TRUE(refused(good.substr(0, left))) << left;
  }
  // The header, too: its metadata say whether the state is fresh, for instance.
  const std::size_t header = good.find("\"checksum\"");
  ASSERT_NE(header, good.npos);
  for (std::size_t at = 0; at < good.size(); at += at < header + 1000 ? 1 : 97) {
    const std::size_t bit = at % 8;
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 1 << bit);
    EXPECT_TRUE(refused(bytes)) << "bit " << bit << " of byte " << at;
  }
  const std::string count = R"("sequences":"2")";
  ASSERT_NE(good.find(count), good.npos);
  for (const char* other : {R"("sequences":"1")", R"("sequences":"9")", R"("sequences":"-")"}) {
    std::string bytes = good;
    EXPECT_TRUE(refused(bytes.replace(bytes.find(count), count.size(), other))) << other;
  }
  EXPECT_NE(complaint([&] { model.load_session(path("none")); }), "");
  EXPECT_NE(complaint([&] {
              model.load_session(DELTANET_SOURCE_DIR "/tests/golden/models/pgdn/model.safetensors");
            }).find("not a saved state"),
            std::string::npos);
}

TEST(Sessions, WrongNumbersOfPromptsAreErrors) {
  Model model = Model::from_config(cases()[0].config, 1);
  EXPECT_THROW(model.start(0), Error);
  Session session = model.start(2);
  for (const std::vector<Ids>& prompts :
       {std::vector<Ids>{}, {ids_of(3, 1)}, {ids_of(3, 1), ids_of(3, 2), ids_of(3, 3)}, {ids_of(3, 1), {}}}) {
    std::vector<float> logits(2 * kVocab);
    EXPECT_THROW(session.read(prompts, logits.data()), Error);
    for (const double penalty : {1.0, 1.5}) {
      GenerateOptions options;
      options.sampling.repetition_penalty = penalty;
      EXPECT_THROW(session.generate(prompts, options, [](int64_t, int32_t) { return true; }), Error);
    }
  }
}

// What the last call chose and nobody has read yet is part of the text: a penalty counts it, also in a stream.
TEST(Sessions, PenaltiesCountTheTokenThatWaits) {
  Model model = Model::from_config(row_config_of("gdn"), 1, {.threads = 1});
  GenerateOptions punished;
  punished.max_tokens = 1;
  punished.sampling.repetition_penalty = 1e6;
  int compared = 0;
  for (int seed = 0; seed < 20; ++seed) {
    const auto continued = [&](bool streams, const GenerateOptions& options) {
      Session session = model.start();
      Ids said = generate(session, {ids_of(5, seed)}, {1}).front();
      if (streams) {
        TokenStream stream = session.stream({}, options);
        said.push_back(stream.next().value());
      } else {
        session.generate(std::vector<Ids>(1), options, [&](int64_t, int32_t id) {
          said.push_back(id);
          return false;
        });
      }
      return said;
    };
    const Ids again = continued(false, {.max_tokens = 1});
    if (again[0] != again[1]) continue;  // this one does not repeat itself anyway
    ++compared;
    for (const bool streams : {false, true}) {
      const Ids said = continued(streams, punished);
      EXPECT_EQ(said[0], again[0]);
      EXPECT_NE(said[1], again[0]) << "seed " << seed << (streams ? ", a stream" : "");
    }
  }
  EXPECT_GT(compared, 0);
}

// Sequences of one batch are drawn apart, each as it would be by itself with the seed that is its place further.
TEST(Sessions, EverySequenceHasDrawsOfItsOwn) {
  Model model = Model::from_config(row_config_of("gdn"), 1, {.threads = 1});
  const auto drawn = [&](const std::vector<Ids>& prompts, uint64_t seed) {
    Session session = model.start(static_cast<int64_t>(prompts.size()));
    std::vector<Ids> said(prompts.size());
    session.generate(prompts, {.max_tokens = 20, .sampling = {.temperature = 1.0, .seed = seed}},
                     [&](int64_t n, int32_t id) {
                       said[static_cast<std::size_t>(n)].push_back(id);
                       return true;
                     });
    return said;
  };
  const Ids prompt = ids_of(5, 1);
  const std::vector<Ids> batch = drawn({prompt, prompt, prompt}, 11);
  EXPECT_NE(batch[0], batch[1]);
  EXPECT_NE(batch[1], batch[2]);
  for (uint64_t n = 0; n < 3; ++n) EXPECT_EQ(drawn({prompt}, 11 + n).front(), batch[n]) << n;
}

TEST(Sessions, RefuseWhatTheyCannotDo) {
  Model model = Model::from_config(row_config_of("gdn"), 1, {.threads = 1});
  Session two = model.start(2);
  const int64_t outside[] = {0, 2};
  EXPECT_THROW(two.copy(outside), Error);
  EXPECT_THROW(two.copy({}), Error);
  EXPECT_THROW(two.stream(ids_of(3, 1), {}), Error);
  Session one = model.start();
  TokenStream ends = one.stream(ids_of(3, 1), {.max_tokens = 2});
  const std::vector<int32_t> end_ids = {ends.next().value()};
  one.reset();
  TokenStream ended = one.stream(ids_of(3, 1), {.max_tokens = 2, .end_ids = end_ids});
  EXPECT_EQ(ended.next(), end_ids.front());
  EXPECT_EQ(ended.next(), std::nullopt);
  double log_prob = 0;
  bool greedy = false;
  const int32_t id = 1;
  const int64_t offsets[] = {0, 1};
  EXPECT_THROW(one.log_probs({&id, 1}, {&id, 1}, offsets, &log_prob, &greedy), Error);  // a token is pending
}

}  // namespace
}  // namespace deltanet::test
