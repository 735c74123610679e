// Every row of the table as the mixer of a model, the Transformer, and hybrids of both: gradients against finite
// differences, decoding against one pass, packing, threads.

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "deltanet/model.h"
#include "deltanet/rows.h"
#include "model_fixture.h"
#include "sanitized.h"

namespace deltanet::test {
namespace {

constexpr const char* kSmall = R"("hidden_size": 32, "head_dim": 16, "intermediate_size": 48)";
// Rows this long are not next to each other in memory (nn::wide_ld).
constexpr const char* kWide = R"("hidden_size": 64, "head_dim": 32, "intermediate_size": 72)";

// The large norm_eps makes the loss smooth: without it the normalized output of a head jumps where q.k of its first
// token changes sign, and no slope there tells anything.
std::string tiny_config(const std::string& row, const std::string& more = "", const std::string& sizes = kSmall) {
  const std::string common = sizes + R"(, "num_hidden_layers": 2, "num_heads": 2, "vocab_size": 40,
         "tie_word_embeddings": true, "initializer_range": 0.15, "norm_eps": 0.1)";
  if (row == "transformer") return R"({"model_type": "transformer", )" + common + more + "}";
  return R"({"model_type": "dgps", "expand_v": 1.0, "row": ")" + row + "\", " + common + more + "}";
}

struct Case {
  std::string name, config;
};

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const Row& row : rows()) list.push_back({std::string(row.name), tiny_config(std::string(row.name))});
  list.push_back(
      {"transformer", tiny_config("transformer", R"(, "qkv_bias": true, "qk_norm": true, "num_kv_heads": 1)", kWide)});
  list.push_back(
      {"hybrid",
       tiny_config("pgdn", R"(, "attn": {"layers": [1], "num_heads": 4, "num_kv_heads": 2, "window_size": 7})",
                   kWide)});
  list.push_back({"pgdn_no_conv_gated", tiny_config("pgdn", R"(, "use_short_conv": false, "use_gate": true,
                  "output_gate_activation": "sigmoid", "allow_neg_eigval": true)")});
  list.push_back({"gdn_grouped_wide", tiny_config("gdn", R"(, "num_v_heads": 4, "use_gate": true)", kWide)});
  return list;
}

class RowModel : public testing::TestWithParam<Case> {
 protected:
  RowModel() : model_(Model::from_config(GetParam().config, 1)) {
    // Away from the start, where some parameters have no influence on others.
    std::mt19937 random(2);
    std::normal_distribution<float> normal(0.0f, 0.1f);
    for (const ParameterInfo& info : model_.parameters()) {
      std::vector<float> values = model_.parameter(info.name);
      for (float& value : values) value += normal(random);
      model_.set_parameter(info.name, values);
    }
    std::uniform_int_distribution<int32_t> id(0, 39);
    for (const int length : {21, 1, 34}) {
      std::vector<int32_t> sequence;
      for (int t = 0; t < length; ++t) sequence.push_back(id(random));
      sequences_.push_back(sequence);
    }
  }

  // Of every parameter, in the order of parameters().
  std::vector<std::vector<float>> gradients() const {
    std::vector<std::vector<float>> list;
    for (const ParameterInfo& info : model_.parameters()) {
      const auto gradient = model_.gradient(info.name);
      list.emplace_back(gradient.begin(), gradient.end());
    }
    return list;
  }

  Model model_;
  std::vector<std::vector<int32_t>> sequences_;
};

// The slope of the loss along random directions in the parameters of one kind at a time: float32 allows no more.
TEST_P(RowModel, GradientsAreSlopes) {
  const Packed batch(sequences_);
  const std::vector<int32_t> targets = batch.next();
  model_.loss_and_gradients(batch.ids, targets, batch.offsets);
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const ParameterInfo& info : model_.parameters()) {
    if (kSanitized && info.name.find(".layers.0.") != std::string::npos) continue;  // the code of the second layer
    const auto span = model_.gradient(info.name);
    const std::vector<float> gradient(span.begin(), span.end()), values = model_.parameter(info.name);
    // Half the gradient, half noise: the slope is large, and wrong components show.
    double norm = 0, noise_norm = 0, expected = 0;
    std::vector<float> direction(values.size());
    for (const float g : gradient) norm += static_cast<double>(g) * g;
    for (float& d : direction) d = normal(random), noise_norm += static_cast<double>(d) * d;
    if (norm == 0) continue;
    for (std::size_t i = 0; i < values.size(); ++i) {
      direction[i] = static_cast<float>(gradient[i] / std::sqrt(norm) + direction[i] / std::sqrt(noise_norm));
      expected += static_cast<double>(gradient[i]) * direction[i];
    }
    const auto loss_at = [&](double step) {
      std::vector<float> moved(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) moved[i] = static_cast<float>(values[i] + step * direction[i]);
      model_.set_parameter(info.name, moved);
      return model_.loss(batch.ids, targets, batch.offsets).mean();
    };
    // Richardson's extrapolation removes the cubic term, so that the step can be large enough for float32.
    const double h = 5e-3;
    const double coarse = (loss_at(h) - loss_at(-h)) / (2 * h), fine = (loss_at(h / 2) - loss_at(-h / 2)) / h;
    model_.set_parameter(info.name, values);
    EXPECT_NEAR((4 * fine - coarse) / 3, expected, 2e-2 * std::sqrt(norm) + 2e-4) << info.name;
  }
}

TEST_P(RowModel, PrefillThenDecodeEqualsOnePass) {
  const auto vocab = static_cast<std::size_t>(model_.vocab_size());
  const std::vector<std::vector<int32_t>> one = {sequences_[2]};
  const Packed batch(one);
  std::vector<float> logits(batch.ids.size() * vocab), step(vocab);
  model_.logits(batch.ids, batch.offsets, logits.data());
  for (const std::size_t prefill : {std::size_t{1}, std::size_t{19}}) {
    Session session = model_.start();
    std::size_t end = prefill;
    session.read({{std::vector<int32_t>(one[0].begin(), one[0].begin() + static_cast<int64_t>(end))}}, step.data());
    for (;; ++end) {
      const float* whole = logits.data() + (end - 1) * vocab;
      EXPECT_LE(relative_error(step, {whole, whole + vocab}), 1e-5) << "token " << end - 1;
      if (end == one[0].size()) break;
      session.read({{std::vector<int32_t>{one[0][end]}}}, step.data());
    }
  }
}

TEST_P(RowModel, PackedSequencesDoNotSeeEachOther) {
  const auto vocab = static_cast<std::size_t>(model_.vocab_size());
  const Packed batch(sequences_);
  std::vector<float> packed(batch.ids.size() * vocab);
  model_.logits(batch.ids, batch.offsets, packed.data());
  for (std::size_t n = 0; n < sequences_.size(); ++n) {
    const Packed alone({sequences_[n]});
    std::vector<float> logits(alone.ids.size() * vocab);
    model_.logits(alone.ids, alone.offsets, logits.data());
    const float* part = packed.data() + batch.offsets[n] * static_cast<int64_t>(vocab);
    EXPECT_LE(relative_error(logits, {part, part + logits.size()}), 1e-5) << "sequence " << n;
  }
}

// Sequences of one token take the recurrent form. A second token without a target changes nothing.
TEST_P(RowModel, SequencesOfOneTokenHaveTheGradientsOfLongerOnes) {
  const std::vector<int32_t> tokens = sequences_[0];
  std::vector<std::vector<int32_t>> ones, twos;
  std::vector<int32_t> targets, padded;
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    ones.push_back({tokens[i]});
    twos.push_back({tokens[i], tokens[0]});
    targets.push_back(tokens[i + 1]);
    padded.insert(padded.end(), {tokens[i + 1], -100});
  }
  const Packed longer(twos), batch(ones);
  const double expected = model_.loss_and_gradients(longer.ids, padded, longer.offsets).mean();
  const std::vector<std::vector<float>> of_longer = gradients();
  EXPECT_NEAR(model_.loss_and_gradients(batch.ids, targets, batch.offsets).mean(), expected, 1e-5);
  const std::vector<std::vector<float>> of_ones = gradients();
  for (std::size_t i = 0; i < of_ones.size(); ++i) {
    for (std::size_t j = 0; j < of_ones[i].size(); ++j) {
      ASSERT_NEAR(of_ones[i][j], of_longer[i][j], 1e-5) << model_.parameters()[i].name;
    }
  }
}

// The buffers of training serve inference as well.
TEST_P(RowModel, GivesTheSameLogitsAfterTraining) {
  const auto vocab = static_cast<std::size_t>(model_.vocab_size());
  const Packed batch(sequences_);
  std::vector<float> before(batch.ids.size() * vocab), after(before.size()), step(vocab), again(vocab);
  const auto run = [&](std::vector<float>& logits, std::vector<float>& next) {
    model_.logits(batch.ids, batch.offsets, logits.data());
    Session session = model_.start();
    session.read({{sequences_[0]}}, next.data());
    session.read({{std::vector<int32_t>{7}}}, next.data());
  };
  run(before, step);
  model_.loss_and_gradients(batch.ids, batch.next(), batch.offsets);
  run(after, again);
  EXPECT_EQ(after, before);
  EXPECT_EQ(again, step);
}

TEST_P(RowModel, RecomputedGradientsAreTheSame) {
  const Packed batch(sequences_);
  model_.loss_and_gradients(batch.ids, batch.next(), batch.offsets, false);
  const std::vector<std::vector<float>> kept = gradients();
  model_.loss_and_gradients(batch.ids, batch.next(), batch.offsets, true);
  const std::vector<std::vector<float>> recomputed = gradients();
  for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(recomputed[i], kept[i]) << model_.parameters()[i].name;
}

// Products of bfloat16 give nearly the gradients that float32 gives with the same weights.
TEST_P(RowModel, Bfloat16GradientsAreNear) {
  Model rounded = Model::from_config(GetParam().config, 1, {.weights = WeightType::kBfloat16});
  for (const ParameterInfo& info : model_.parameters()) {
    rounded.set_parameter(info.name, model_.parameter(info.name));
    model_.set_parameter(info.name, rounded.parameter(info.name));
  }
  const Packed batch(sequences_);
  for (const bool recompute : {false, true}) {
    model_.loss_and_gradients(batch.ids, batch.next(), batch.offsets, recompute);
    rounded.loss_and_gradients(batch.ids, batch.next(), batch.offsets, recompute);
    for (const ParameterInfo& info : model_.parameters()) {
      const auto want = model_.gradient(info.name), got = rounded.gradient(info.name);
      double difference = 0, size = 0;
      for (std::size_t i = 0; i < want.size(); ++i) {
        difference += std::pow(static_cast<double>(got[i]) - want[i], 2);
        size += std::pow(static_cast<double>(want[i]), 2);
      }
      EXPECT_LE(std::sqrt(difference), 0.03 * std::sqrt(size) + 1e-4) << info.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, RowModel, testing::ValuesIn(cases()), [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace deltanet::test
