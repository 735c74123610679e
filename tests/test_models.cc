// Whole models against golden ones: logits, loss, every gradient, greedy continuation; and decoding against one pass.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "deltanet/model.h"
#include "model_fixture.h"
#include "temporary_directory.h"

namespace deltanet::test {
namespace {

class GoldenModel : public testing::TestWithParam<std::filesystem::path> {
 protected:
  void SetUp() override { fixture_ = read_model_fixture(GetParam()); }
  Model load(const ModelOptions& options = {}) const { return Model::load(fixture_.directory.string(), options); }

  ModelFixture fixture_;
};

TEST_P(GoldenModel, LogitsAreTheReferences) {
  Model model = load();
  const Packed batch(fixture_.input_ids);
  std::vector<float> logits(batch.ids.size() * static_cast<std::size_t>(model.vocab_size()));
  model.logits(batch.ids, batch.offsets, logits.data());
  EXPECT_LE(relative_error(logits, fixture_.logits), 1e-4);
}

TEST_P(GoldenModel, LossAndGradientsAreTheReferences) {
  for (const bool recompute : {false, true}) {
    Model model = load();
    const Packed batch(fixture_.input_ids);
    const LossSum loss = model.loss_and_gradients(batch.ids, batch.next(), batch.offsets, recompute);
    EXPECT_NEAR(loss.mean(), fixture_.loss, 1e-5 * fixture_.loss);
    EXPECT_NEAR(model.loss(batch.ids, batch.next(), batch.offsets).mean(), fixture_.loss, 1e-5 * fixture_.loss);
    ASSERT_EQ(model.parameters().size(), fixture_.gradients.size());
    for (const auto& [name, expected] : fixture_.gradients) {
      const auto gradient = model.gradient(name);
      EXPECT_LE(relative_error({gradient.begin(), gradient.end()}, expected), 1e-4) << name;
    }
  }
}

TEST_P(GoldenModel, GreedyContinuationIsTheReferences) {
  if (fixture_.prompt.empty()) GTEST_SKIP() << "this fixture has no continuation";
  Model model = load();
  Session session = model.start(static_cast<int64_t>(fixture_.prompt.size()));
  GenerateOptions options;
  options.max_tokens = static_cast<int64_t>(fixture_.greedy.front().size());
  std::vector<std::vector<int32_t>> continued(fixture_.prompt.size());
  session.generate(fixture_.prompt, options, [&](int64_t n, int32_t id) {
    continued[n].push_back(id);
    return true;
  });
  EXPECT_EQ(continued, fixture_.greedy);
}

// Logits after each token, when the first `prefill` tokens are read at once and the others one by one.
std::vector<float> decoded_logits(Model& model, const std::vector<std::vector<int32_t>>& sequences, std::size_t prefill,
                                  std::size_t length) {
  const auto N = sequences.size();
  const auto vocab = static_cast<std::size_t>(model.vocab_size());
  Session session = model.start(static_cast<int64_t>(N));
  std::vector<float> step(N * vocab), all;
  for (std::size_t end = prefill; end <= length; ++end) {
    std::vector<std::vector<int32_t>> block;
    for (const auto& sequence : sequences) {
      block.emplace_back(sequence.begin() + (end == prefill ? 0 : end - 1), sequence.begin() + end);
    }
    session.read(block, step.data());
    all.insert(all.end(), step.begin(), step.end());
  }
  return all;
}

TEST_P(GoldenModel, PrefillThenDecodeEqualsOnePass) {
  Model model = load();
  const auto vocab = static_cast<std::size_t>(model.vocab_size());
  const std::size_t length = fixture_.input_ids.front().size(), N = fixture_.input_ids.size();
  const Packed batch(fixture_.input_ids);
  std::vector<float> logits(batch.ids.size() * vocab);
  model.logits(batch.ids, batch.offsets, logits.data());
  for (const std::size_t prefill : {std::size_t{1}, std::size_t{5}, length / 2}) {
    const std::vector<float> decoded = decoded_logits(model, fixture_.input_ids, prefill, length);
    for (std::size_t t = prefill; t <= length; ++t) {
      for (std::size_t n = 0; n < N; ++n) {
        const auto* whole = logits.data() + (n * length + t - 1) * vocab;
        const auto* step = decoded.data() + ((t - prefill) * N + n) * vocab;
        EXPECT_LE(relative_error({step, step + vocab}, {whole, whole + vocab}), 1e-5) << "token " << t - 1;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenModel, testing::ValuesIn(model_fixture_paths()),
                         [](const auto& test) { return model_fixture_name(test.param); });

// What new weights are, by their names: the distributions that docs/models.md and upstream's code give.
TEST(InitialValues, AreThoseOfTheDocuments) {
  const auto softplus = [](double x) { return std::log1p(std::exp(x)); };
  struct Spread {
    double lowest = 1e300, highest = -1e300, mean = 0, deviation = 0;
  };
  const auto spread_of = [](const std::vector<float>& values, const std::function<double(double)>& f) {
    Spread spread;
    double squares = 0;
    for (const float value : values) {
      const double x = f(value);
      spread.lowest = std::min(spread.lowest, x);
      spread.highest = std::max(spread.highest, x);
      spread.mean += x / static_cast<double>(values.size());
      squares += x * x / static_cast<double>(values.size());
    }
    spread.deviation = std::sqrt(std::max(0.0, squares - spread.mean * spread.mean));
    return spread;
  };
  const auto is = [](const std::string& name, const char* part) { return name.find(part) != std::string::npos; };
  std::set<std::string> seen;
  for (const char* row : {"pgdn", "pkda", "mesa", "rls", "comba"}) {
    const std::string config = R"({"model_type": "dgps", "row": ")" + std::string(row) +
                               R"(", "hidden_size": 64, "num_heads": 512, "head_dim": 2, "expand_v": 1.0,
        "num_hidden_layers": 1, "vocab_size": 500, "intermediate_size": 48, "initializer_range": 0.05})";
    const Model model = Model::from_config(config, 1);
    for (const ParameterInfo& info : model.parameters()) {
      SCOPED_TRACE(std::string(row) + " " + info.name);
      const std::vector<float> values = model.parameter(info.name);
      const double error = 5 / std::sqrt(static_cast<double>(values.size()));  // of a mean, in deviations
      const auto expect_uniform = [&](double low, double high, const std::function<double(double)>& f) {
        const Spread spread = spread_of(values, f);
        const double width = high - low;
        EXPECT_TRUE(spread.lowest >= low - 1e-4 * width && spread.highest <= high + 1e-4 * width);
        EXPECT_NEAR(spread.mean, (low + high) / 2, error * width / std::sqrt(12));
        EXPECT_NEAR(spread.deviation, width / std::sqrt(12), error * width / std::sqrt(12));
      };
      const auto expect_all = [&](double want, const std::function<double(double)>& f) {
        const Spread spread = spread_of(values, f);
        EXPECT_NEAR(spread.lowest, want, 1e-6);
        EXPECT_NEAR(spread.highest, want, 1e-6);
      };
      const auto self = [](double x) { return x; };
      if (is(info.name, "A_log")) {
        const bool of_diagonal_decay = std::string(row) == "pkda";
        expect_uniform(of_diagonal_decay ? 1 : 0, 16, [](double x) { return std::exp(x); });
        seen.insert("A_log");
      } else if (is(info.name, "dt_bias")) {
        expect_uniform(std::log(1e-3), std::log(0.1), [&](double x) { return std::log(softplus(x)); });
        seen.insert("dt_bias");
      } else if (is(info.name, "lambda")) {
        expect_all(1, [&](double x) { return 0.25 + softplus(x); });
        seen.insert("lambda");
      } else if (is(info.name, "log_atk_scale")) {
        expect_all(-0.2, self);
        seen.insert("log_atk_scale");
      } else if (is(info.name, "norm.weight")) {
        expect_all(1, self);
      } else if (info.shape.size() > 1) {
        const Spread spread = spread_of(values, self);
        EXPECT_NEAR(spread.mean, 0, error * 0.05);
        EXPECT_NEAR(spread.deviation, 0.05, error * 0.05);
        EXPECT_GT(spread.highest, 2 * 0.05);  // not uniform
      }
    }
  }
  EXPECT_EQ(seen.size(), 4u);
}

// Matrices of more values than one thread takes at a time, whose rows differ in size: each keeps its scale, whichever
// way the values come.
TEST(NarrowWeights, KeepTheScaleOfEveryRow) {
  const std::string config = R"({"model_type": "dgps", "row": "delta_net", "hidden_size": 256, "num_heads": 2,
      "head_dim": 8, "expand_v": 1.0, "num_hidden_layers": 1, "vocab_size": 4200, "intermediate_size": 48,
      "tie_word_embeddings": true})";
  Model exact = Model::from_config(config, 1);
  const TemporaryDirectory directory;
  const auto expect_close = [&](const Model& narrow, double relative, double of_largest) {
    for (const ParameterInfo& info : exact.parameters()) {
      const std::vector<float> want = exact.parameter(info.name), got = narrow.parameter(info.name);
      ASSERT_EQ(want.size(), got.size());
      const bool is_matrix = info.shape.size() == 2;  // what is no matrix stays as it is
      const auto columns = static_cast<std::size_t>(info.shape.back());
      for (std::size_t row = 0; row < want.size(); row += columns) {
        float largest = 0;
        for (std::size_t i = row; i < row + columns; ++i) largest = std::max(largest, std::fabs(want[i]));
        for (std::size_t i = row; i < row + columns; ++i) {
          const double bound = is_matrix ? relative * std::fabs(want[i]) + of_largest * largest : 0;
          ASSERT_NEAR(got[i], want[i], bound) << info.name << "[" << i << "]";
        }
      }
    }
  };
  const std::pair<WeightType, std::pair<double, double>> types[] = {
      {WeightType::kFloat32, {0, 0}}, {WeightType::kBfloat16, {0x1p-8, 0}}, {WeightType::kInt8, {0, 0.501 / 127}}};
  for (const auto& [type, bounds] : types) {
    expect_close(Model::from_config(config, 1, {.weights = type}), bounds.first, bounds.second);
  }
  for (const ParameterInfo& info : exact.parameters()) {
    std::vector<float> values = exact.parameter(info.name);
    const auto columns = static_cast<std::size_t>(info.shape.back());
    for (std::size_t i = 0; i < values.size(); ++i) values[i] *= static_cast<float>(1 + i / columns % 7);
    exact.set_parameter(info.name, values);
  }
  exact.save(directory.path().string());
  for (const auto& [type, bounds] : types) {
    for (const int threads : {1, 3}) {
      expect_close(Model::load(directory.path().string(), {.weights = type, .threads = threads}), bounds.first,
                   bounds.second);
    }
    Model set = Model::from_config(config, 2, {.weights = type, .threads = 3});
    for (const ParameterInfo& info : exact.parameters()) set.set_parameter(info.name, exact.parameter(info.name));
    expect_close(set, bounds.first, bounds.second);
  }
}

}  // namespace
}  // namespace deltanet::test
