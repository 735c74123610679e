// Sequences shared out over threads: the same losses and gradients as one pass over all of them.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "deltanet/error.h"
#include "train/batch_model.h"
#include "train_fixture.h"

namespace deltanet::test {
namespace {

constexpr int64_t kLength = 256, kSequences = 4;  // with two threads 512 rows each, the fewest that are shared out

struct Computed {
  double loss;
  std::vector<float> matrices, vectors;
};

class SmallModel {
 public:
  explicit SmallModel(nn::WeightType type = nn::WeightType::kFloat32, bool use_l2warp = false)
      : layout_(std::make_shared<Layout>(small_config(use_l2warp))),
        weights_(std::make_shared<Weights>(layout_, type, /*keep_masters=*/true)) {
    weights_->initialize(1, 1);
  }

  BatchModel model(int threads, bool whole = false, int64_t sequences = kSequences, int64_t length = kLength) const {
    return {weights_, threads, sequences, length, Keep::kAll, whole};
  }

  // Onto what is not a number, unless they are added to `before`.
  Computed compute(BatchModel& model, const Batch& batch, const Computed* before = nullptr) const {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    Computed made{0, std::vector<float>(static_cast<std::size_t>(layout_->matrices_size()), kNan),
                  std::vector<float>(static_cast<std::size_t>(layout_->vectors_size()), kNan)};
    if (before) made = *before;
    made.loss = model.loss_and_gradients(
        batch.ids, batch.targets, batch.offsets, {1e-3f, 2e-3f},
        {.matrices = made.matrices.data(), .vectors = made.vectors.data(), .add = before != nullptr});
    return made;
  }

 private:
  static Config small_config(bool use_l2warp) {
    Config config = tiny_config().model_config();
    config.use_l2warp = use_l2warp;
    return config;
  }

  std::shared_ptr<const Layout> layout_;
  std::shared_ptr<Weights> weights_;
};

Batch batch_of(int64_t sequences, int64_t length = kLength) {
  Batch batch;
  PatternSource(length, 100).fill(3, sequences, batch);
  return batch;
}

double norm(const std::vector<float>& x) { return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0)); }

void expect_near(const std::vector<float>& got, const std::vector<float>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  std::vector<float> difference(got.size());
  for (std::size_t i = 0; i < got.size(); ++i) difference[i] = got[i] - want[i];
  EXPECT_LE(norm(difference), tolerance * norm(want));  // not if anything is not finite
}

void expect_near(const Computed& got, const Computed& want, double tolerance) {
  EXPECT_NEAR(got.loss, want.loss, tolerance * std::fabs(want.loss));
  expect_near(got.matrices, want.matrices, tolerance);
  expect_near(got.vectors, want.vectors, tolerance);
}

TEST(BatchModel, SharesOutWhereItPays) {
  const SmallModel small;
  EXPECT_EQ(small.model(2).parts(), 2);
  EXPECT_EQ(small.model(2, false, 6, 200).parts(), 2);
  EXPECT_EQ(small.model(1).parts(), 1);
  EXPECT_EQ(small.model(2, /*whole=*/true).parts(), 1);
  EXPECT_EQ(small.model(2, false, 3, 512).parts(), 1) << "two sequences for one, one for the other";
  EXPECT_EQ(small.model(4).parts(), 1) << "256 rows each";
  EXPECT_EQ(small.model(2, true).gradient_bytes(), 0);
  EXPECT_GT(small.model(2).gradient_bytes(), 0);
}

TEST(BatchModel, PartsAreAsEvenAsSequencesAllow) {
  using Cuts = std::vector<std::size_t>;
  const auto cuts = [](const std::vector<int64_t>& lengths, int64_t parts) {
    std::vector<int64_t> offsets = {0};
    for (const int64_t length : lengths) offsets.push_back(offsets.back() + length);
    return BatchModel::cuts(offsets, parts);
  };
  EXPECT_EQ(cuts({4, 4, 4, 4}, 2), (Cuts{0, 2, 4}));
  EXPECT_EQ(cuts({1023, 1025}, 2), (Cuts{0, 1, 2}));
  EXPECT_EQ(cuts({1025, 1023}, 2), (Cuts{0, 1, 2}));
  EXPECT_EQ(cuts({100, 99, 100, 100}, 2), (Cuts{0, 2, 4}));
  EXPECT_EQ(cuts({10, 1, 1}, 2), (Cuts{0, 1, 3}));
  EXPECT_EQ(cuts({1, 10}, 2), (Cuts{0, 1, 2}));
  EXPECT_EQ(cuts({1, 1, 10}, 3), (Cuts{0, 2, 3, 3}));
  EXPECT_EQ(cuts({5}, 3), (Cuts{0, 1, 1, 1}));
  EXPECT_EQ(cuts({1, 1}, 4), (Cuts{0, 1, 1, 1, 2}));
}

TEST(BatchModel, EqualsOnePass) {
  for (const auto& [type, tolerance] :
       {std::pair{nn::WeightType::kFloat32, 2e-6}, std::pair{nn::WeightType::kBfloat16, 2e-3}}) {
    const SmallModel small(type);
    BatchModel apart = small.model(2), whole = small.model(2, true);
    // The last batches of an epoch are smaller: a part may be empty, or larger than the other.
    for (const int64_t sequences : {4, 1, 3, 2, 4}) {
      const Batch batch = batch_of(sequences);
      const Computed want = small.compute(whole, batch);
      expect_near(small.compute(apart, batch), want, tolerance);
      EXPECT_NEAR(apart.loss(batch.ids, batch.targets, batch.offsets), want.loss, tolerance * want.loss);
    }
  }
}

TEST(BatchModel, MoreThreadsThanSequences) {
  const SmallModel small;
  BatchModel apart = small.model(4, false, 8), whole = small.model(2, true, 8);
  ASSERT_EQ(apart.parts(), 4);
  for (const int64_t sequences : {1, 2, 3, 5, 7}) {
    const Batch batch = batch_of(sequences);
    expect_near(small.compute(apart, batch), small.compute(whole, batch), 2e-6);
  }
}

// Documents end inside of sequences, and one part may have nothing to predict.
TEST(BatchModel, DocumentsAndMissingTargets) {
  const SmallModel small;
  BatchModel apart = small.model(2), whole = small.model(2, true);
  Batch batch = batch_of(4);
  batch.offsets = {0, 100, 256, 300, 301, 512, 768, 900, 1024};
  expect_near(small.compute(apart, batch), small.compute(whole, batch), 2e-6);
  std::fill(batch.targets.begin() + 512, batch.targets.end(), -100);
  expect_near(small.compute(apart, batch), small.compute(whole, batch), 2e-6);
}

// What use_l2warp adds goes by tokens, which a part has a share of, and by those without a target too.
TEST(BatchModel, PullsLogitsInEveryPart) {
  const SmallModel small(nn::WeightType::kFloat32, /*use_l2warp=*/true), plain;
  BatchModel apart = small.model(2), whole = small.model(2, true), without = plain.model(2, true);
  Batch batch = batch_of(4);
  std::fill(batch.targets.begin(), batch.targets.end(), -100);
  EXPECT_EQ(norm(plain.compute(without, batch).matrices), 0.0);
  const Computed pulled = small.compute(whole, batch);
  EXPECT_EQ(pulled.loss, 0.0);
  EXPECT_GT(norm(pulled.matrices), 0.0);
  expect_near(small.compute(apart, batch), pulled, 2e-6);
}

TEST(BatchModel, AddsToWhatIsThere) {
  const SmallModel small;
  BatchModel apart = small.model(2);
  const Batch batch = batch_of(4);
  const Computed once = small.compute(apart, batch);
  Computed twice = small.compute(apart, batch, &once);
  for (auto* values : {&twice.matrices, &twice.vectors}) {
    for (float& value : *values) value /= 2;
  }
  expect_near(twice, once, 1e-6);
}

TEST(BatchModel, RepeatsBitForBit) {
  const SmallModel small;
  BatchModel apart = small.model(2);
  const Batch batch = batch_of(4), other = batch_of(2);
  const Computed first = small.compute(apart, batch);
  small.compute(apart, other);
  const Computed again = small.compute(apart, batch);
  EXPECT_EQ(again.loss, first.loss);
  EXPECT_EQ(again.matrices, first.matrices);
  EXPECT_EQ(again.vectors, first.vectors);
}

TEST(BatchModel, ErrorsNameThePlaceInTheBatch) {
  const SmallModel small;
  BatchModel apart = small.model(2);
  Batch batch = batch_of(4);
  const Computed want = small.compute(apart, batch);
  const int32_t held = std::exchange(batch.ids.back(), 64);  // outside of the vocabulary
  try {
    small.compute(apart, batch);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("ids[1023]: given 64"), std::string::npos) << error.what();
  }
  batch.ids.back() = held;
  batch.targets.pop_back();
  EXPECT_THROW(small.compute(apart, batch), Error);
  batch.targets.push_back(1);
  batch.offsets.back() = 1023;
  EXPECT_THROW(small.compute(apart, batch), Error);
  batch = batch_of(4);
  EXPECT_EQ(small.compute(apart, batch).matrices, want.matrices);
}

}  // namespace
}  // namespace deltanet::test
