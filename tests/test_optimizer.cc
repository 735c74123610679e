// Optimizer: a step is AdamW on the gradients of the model, a run goes on bit for bit after a file, and nothing changes
// where a step cannot be made.

#include "deltanet/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "deltanet/error.h"
#include "model_fixture.h"
#include "temporary_directory.h"

namespace deltanet::test {
namespace {

constexpr const char* kConfig = R"({"model_type": "dgps", "row": "pgdn", "expand_v": 1.0, "hidden_size": 32,
    "num_hidden_layers": 2, "num_heads": 2, "head_dim": 16, "vocab_size": 40, "intermediate_size": 48})";

Model new_model(WeightType weights = WeightType::kFloat32) {
  return Model::from_config(kConfig, 1, {.weights = weights, .threads = 1});
}

Packed batch() {
  std::vector<std::vector<int32_t>> sequences(2);
  for (int i = 0; i < 33; ++i) sequences[i % 2].push_back(i * 7 % 40);
  return Packed(sequences);
}

TrainStepResult step(Optimizer& optimizer, const TrainStepOptions& options) {
  const Packed packed = batch();
  return optimizer.step(packed.ids, packed.next(), packed.offsets, options);
}

std::vector<float> all_values(const Model& model) {
  std::vector<float> values;
  for (const ParameterInfo& info : model.parameters()) {
    const std::vector<float> more = model.parameter(info.name);
    values.insert(values.end(), more.begin(), more.end());
  }
  return values;
}

// The first step moves every value by lr (g / (|g| + eps) + weight_decay p), since the corrected moments are g and g^2.
TEST(Optimizer, FirstStepFollowsTheEquation) {
  Model model = new_model();
  const Packed packed = batch();
  const LossSum loss = model.loss_and_gradients(packed.ids, packed.next(), packed.offsets);
  const std::vector<float> before = all_values(model);
  std::vector<double> gradients;
  for (const ParameterInfo& info : model.parameters()) {
    const auto gradient = model.gradient(info.name);
    gradients.insert(gradients.end(), gradient.begin(), gradient.end());
  }
  const double norm = std::sqrt(std::inner_product(gradients.begin(), gradients.end(), gradients.begin(), 0.0));
  ASSERT_GT(norm, 0.1);

  Optimizer optimizer(model);
  const TrainStepOptions options{.lr = 1e-2, .adamw = {.eps = 1e-3, .weight_decay = 0.1}, .clip = norm / 2};
  const TrainStepResult result = step(optimizer, options);
  EXPECT_FALSE(result.skipped);
  EXPECT_NEAR(result.loss, loss.mean(), 1e-6);
  EXPECT_NEAR(result.grad_norm, norm, 1e-5 * norm);
  const std::vector<float> after = all_values(model);
  for (std::size_t i = 0; i < before.size(); ++i) {
    const double g = gradients[i] / 2;
    const double expected = before[i] - 1e-2 * (g / (std::fabs(g) + 1e-3) + 0.1 * before[i]);
    ASSERT_NEAR(after[i], expected, 2e-6) << i;
  }
}

class EveryTrainableType : public testing::TestWithParam<WeightType> {};

TEST_P(EveryTrainableType, LearnsABatch) {
  Model model = new_model(GetParam());
  Optimizer optimizer(model);
  const double first = step(optimizer, {.lr = 1e-2}).loss;
  for (int i = 0; i < 40; ++i) step(optimizer, {.lr = 1e-2, .recompute = i % 2 == 0});
  EXPECT_LT(step(optimizer, {.lr = 1e-2}).loss, 0.3 * first);
  EXPECT_EQ(optimizer.steps(), 42);
}

INSTANTIATE_TEST_SUITE_P(Types, EveryTrainableType, testing::Values(WeightType::kFloat32, WeightType::kBfloat16),
                         [](const auto& test) { return test.param == WeightType::kFloat32 ? "f32" : "bf16"; });

// Two threads take two sequences each: 512 tokens, the fewest that are shared out.
TEST(Optimizer, SequencesSharedOutOverThreads) {
  std::vector<std::vector<int32_t>> sequences(4);
  for (int n = 0; n < 4; ++n) {
    for (int i = 0; i < (n == 1 ? 300 : n == 2 ? 212 : 256); ++i) sequences[n].push_back((i * 7 + n * i * i) % 40);
  }
  const Packed packed(sequences);
  Model alone = new_model(), together = Model::from_config(kConfig, 1, {.threads = 2});
  Optimizer of_alone(alone), of_together(together);
  for (const bool recompute : {false, false, true}) {
    const TrainStepOptions options{.lr = 1e-3, .recompute = recompute};
    const TrainStepResult want = of_alone.step(packed.ids, packed.next(), packed.offsets, options);
    const TrainStepResult got = of_together.step(packed.ids, packed.next(), packed.offsets, options);
    EXPECT_NEAR(got.loss, want.loss, 1e-5 * want.loss);
    EXPECT_NEAR(got.grad_norm, want.grad_norm, 1e-5 * want.grad_norm);
  }
  const std::vector<float> got = all_values(together), want = all_values(alone);
  for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-4) << i;

  std::vector<int32_t> targets = packed.next();
  targets[777] = 40;
  try {
    of_together.step(packed.ids, targets, packed.offsets, {});
    FAIL() << "a target outside of the vocabulary was taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("777"), std::string::npos) << error.what();
  }
  EXPECT_EQ(all_values(together), got);
}

TEST(Optimizer, GoesOnAfterAFile) {
  const TemporaryDirectory folder;
  Model model = new_model();
  Optimizer optimizer(model);
  for (int i = 0; i < 3; ++i) step(optimizer, {.lr = 1e-2});
  model.save((folder.path() / "model").string());
  optimizer.save((folder.path() / "optimizer").string());
  for (int i = 0; i < 3; ++i) step(optimizer, {.lr = 1e-2});

  Model loaded = Model::load((folder.path() / "model").string(), {.threads = 1});
  Optimizer continued(loaded);
  continued.load((folder.path() / "optimizer").string());
  EXPECT_EQ(continued.steps(), 3);
  for (int i = 0; i < 3; ++i) step(continued, {.lr = 1e-2});
  EXPECT_EQ(all_values(loaded), all_values(model));

  Model other = Model::from_config(std::string(kConfig).replace(std::string(kConfig).find("40"), 2, "41"), 1);
  Optimizer refuses(other);
  EXPECT_THROW(refuses.load((folder.path() / "optimizer").string()), Error);
  EXPECT_THROW(refuses.load((folder.path() / "model" / "model.safetensors").string()), Error);
}

TEST(Optimizer, SkipsWhatIsNotFinite) {
  Model model = new_model();
  const std::string name = model.parameters().front().name;
  std::vector<float> values = model.parameter(name);
  Optimizer optimizer(model);
  values[7 * 32] = std::numeric_limits<float>::quiet_NaN();  // token 7 is in the batch
  model.set_parameter(name, values);
  values = model.parameter(model.parameters().back().name);
  EXPECT_TRUE(step(optimizer, {}).skipped);
  EXPECT_EQ(optimizer.steps(), 0);
  EXPECT_EQ(model.parameter(model.parameters().back().name), values);
}

TEST(Optimizer, RefusesWrongOptions) {
  Model narrow = new_model(WeightType::kInt8);
  EXPECT_THROW(Optimizer{narrow}, Error);
  Model model = new_model();
  Optimizer optimizer(model);
  const std::vector<float> before = all_values(model);
  for (const TrainStepOptions& wrong :
       {TrainStepOptions{.lr = -1.0}, TrainStepOptions{.lr = NAN}, TrainStepOptions{.adamw = {.beta1 = 1.0}},
        TrainStepOptions{.adamw = {.beta2 = -0.1}}, TrainStepOptions{.adamw = {.eps = 0.0}},
        TrainStepOptions{.adamw = {.weight_decay = -1.0}}, TrainStepOptions{.clip = 0.0}}) {
    EXPECT_THROW(step(optimizer, wrong), Error);
  }
  EXPECT_EQ(all_values(model), before);
}

}  // namespace
}  // namespace deltanet::test
