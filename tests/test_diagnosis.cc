// Models that are no longer finite: who asks for scores or words is told which layer and part it was.

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "deltanet/error.h"
#include "deltanet/model.h"
#include "temporary_directory.h"

namespace deltanet::test {
namespace {

using Ids = std::vector<int32_t>;

// A layer of attention between two of the recurrence.
Model make_model(WeightType type = WeightType::kFloat32) {
  return Model::from_config(R"({"model_type": "precond_kda", "hidden_size": 32, "num_hidden_layers": 3,
      "num_heads": 2, "head_dim": 16, "expand_v": 1.0, "vocab_size": 40, "intermediate_size": 48,
      "tie_word_embeddings": false, "initializer_range": 0.15, "attn": {"layers": [1], "num_heads": 2}})",
                            1, {.weights = type, .threads = 2});
}

Ids some_ids() {
  Ids ids;
  for (int32_t i = 0; i < 40; ++i) ids.push_back(i);
  return ids;
}

// What each of the ways to ask a model says, all the same but for what is not finite.
std::vector<std::string> complaints(Model& model) {
  const Ids ids = some_ids(), targets(ids.rbegin(), ids.rend());
  const std::vector<Ids> prompts = {ids};
  const int64_t offsets[] = {0, static_cast<int64_t>(ids.size())};
  std::vector<double> log_prob(ids.size());
  const auto greedy = std::make_unique<bool[]>(ids.size());
  std::vector<float> logits(40);
  Session session = model.start(), reader = model.start(), scorer = model.start();
  const auto say = [](int64_t, int32_t) { return true; };
  return {error_of([&] { session.generate(prompts, {}, say); }),
          error_of([&] { session.stream(ids, {}).next(); }),
          error_of([&] { reader.read(prompts, logits.data()); }),
          error_of([&] { model.generate(prompts, {}, {}, say); }),
          error_of([&] { model.log_probs(ids, targets, offsets, log_prob.data(), greedy.get()); }),
          error_of([&] { scorer.log_probs(ids, targets, offsets, log_prob.data(), greedy.get()); }),
          error_of([&] {
            model.score(std::vector<ScoreRequest>{{ids, targets}}, {}, [](const Scored&) {});
          })};
}

std::string place_of(const std::string& parameter) {
  if (parameter.starts_with("model.embeddings")) return "the embeddings";
  if (parameter.starts_with("model.norm")) return "the last norm";
  if (parameter.starts_with("lm_head")) return "the head";
  const char layer = parameter[std::string("model.layers.").size()];
  const bool mlp = parameter.find(".mlp") != parameter.npos;
  return std::string("layer ") + layer + ", " +
         (mlp            ? "the MLP"
          : layer == '1' ? "the attention"
                         : "the recurrence (pkda)");
}

TEST(Diagnosis, NamesThePartOfEveryParameter) {
  for (const WeightType type : {WeightType::kFloat32, WeightType::kBfloat16}) {
    Model model = make_model(type);
    for (const std::string& complaint : complaints(model)) EXPECT_EQ(complaint, "");
    for (const ParameterInfo& info : model.parameters()) {
      const std::vector<float> values = model.parameter(info.name);
      std::vector<float> spoiled = values;
      spoiled[spoiled.size() / 2] = std::numeric_limits<float>::quiet_NaN();
      model.set_parameter(info.name, spoiled);
      for (const std::string& complaint : complaints(model)) {
        const std::string expected = " are not finite; what first is not is that of " + place_of(info.name) +
                                     ", whose weight " + info.name + " is not finite";
        EXPECT_TRUE(complaint.ends_with(expected)) << info.name << ": " << complaint;
      }
      model.set_parameter(info.name, values);
    }
  }
}

TEST(Diagnosis, NamesAPartThatOverflows) {
  Model model = make_model();
  std::vector<float> large = model.parameter("model.layers.2.mlp.down_proj.weight");
  for (float& value : large) value = 3e38f;
  model.set_parameter("model.layers.2.mlp.down_proj.weight", large);
  for (const std::string& complaint : complaints(model)) {
    EXPECT_TRUE(complaint.ends_with("what first is not is that of layer 2, the MLP")) << complaint;
  }
}

TEST(Diagnosis, NamesAStateThatIsSpoiled) {
  Model model = make_model();
  Session session = model.start();
  std::vector<float> logits(40);
  const std::vector<float> values = model.parameter("model.layers.2.attn.v_proj.weight");
  std::vector<float> spoiled = values;
  spoiled[0] = std::numeric_limits<float>::infinity();
  model.set_parameter("model.layers.2.attn.v_proj.weight", spoiled);
  EXPECT_NE(error_of([&] { session.read({{some_ids()}}, logits.data()); }), "");
  model.set_parameter("model.layers.2.attn.v_proj.weight", values);  // the model is well again, the session is not
  EXPECT_EQ(error_of([&] { session.read({{Ids{1}}}, logits.data()); }),
            "[model] logits are not finite; what first is not is that of layer 2, the state that it carries on");
  session.reset();
  EXPECT_EQ(error_of([&] { session.read({{Ids{1}}}, logits.data()); }), "");
}

}  // namespace
}  // namespace deltanet::test
