// What turns tokens into vectors and back: embedding and cross entropy.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <memory>

#include "layers.h"
#include "nn/cross_entropy.h"
#include "nn/embedding.h"
#include "simd/kernels.h"

namespace deltanet::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// ---- embedding

TEST(Embedding, GathersRowsOfEveryType) {
  const int64_t vocab = 11, D = 37;
  const std::vector<int32_t> ids = {3, 0, 10, 3, 7};
  const auto rows = static_cast<int64_t>(ids.size());
  const std::vector<float> table = floats(random_values(vocab * D, 1)), scale = floats(random_values(vocab, 2));
  std::vector<uint16_t> bf16;
  std::vector<int8_t> int8;
  for (const float v : table) {
    bf16.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16));
    int8.push_back(static_cast<int8_t>(std::lround(std::fmod(v * 40.0f, 127.0f))));
  }
  int8[3 * static_cast<size_t>(D)] = -128;
  const nn::Weight weights[] = {{nn::WeightType::kFloat32, table.data(), nullptr, vocab, D},
                                {nn::WeightType::kBfloat16, bf16.data(), nullptr, vocab, D},
                                {nn::WeightType::kInt8, int8.data(), scale.data(), vocab, D}};
  for (const nn::Weight& weight : weights) {
    Values want;
    for (const int32_t id : ids) {
      for (int64_t i = 0; i < D; ++i) {
        const auto at = static_cast<size_t>(id * D + i);
        if (weight.type == nn::WeightType::kFloat32) want.push_back(table[at]);
        if (weight.type == nn::WeightType::kBfloat16) {
          want.push_back(std::bit_cast<float>(std::bit_cast<uint32_t>(table[at]) & 0xffff0000u));
        }
        if (weight.type == nn::WeightType::kInt8) {
          want.push_back(scale[static_cast<size_t>(id)] * static_cast<float>(int8[at]));
        }
      }
    }
    for (const int threads : {1, 2}) {
      Slice y(rows, D);
      nn::embedding_forward(rows, ids.data(), weight, y.rows(), threads);
      EXPECT_EQ(y.values(), want);
    }
  }
}

TEST(Embedding, AddsGradientsOfRepeatedTokensInOrder) {
  const int64_t vocab = 5, D = 700, rows = 40;
  std::vector<int32_t> ids;
  for (int32_t r = 0; r < rows; ++r) ids.push_back(r * r % 4);
  const Values upstream = random_values(rows * D, 1);
  const std::vector<float> held = floats(random_values(vocab * D, 2));
  std::vector<float> want = held;
  for (size_t i = 0; i < upstream.size(); ++i) {
    const size_t r = i / static_cast<size_t>(D), c = i % static_cast<size_t>(D);
    want[static_cast<size_t>(ids[r]) * static_cast<size_t>(D) + c] += static_cast<float>(upstream[i]);
  }
  for (const int threads : {1, 2, 3}) {
    Slice dy(rows, D, upstream);
    std::vector<float> dtable = held;
    nn::embedding_backward(rows, D, ids.data(), dy.rows(), dtable.data(), threads);
    EXPECT_EQ(dtable, want) << threads << " threads";
  }
}

// ---- cross entropy

double log_sum_exp(const Values& x) {
  double most = -kInf, sum = 0.0;
  for (const double v : x) most = std::max(most, v);
  for (const double v : x) sum += std::exp(v - most);
  return most + std::log(sum);
}

struct Batch {
  int64_t rows, vocab;
  Values logits;
  std::vector<int32_t> labels;

  Values row(int64_t r) const { return {logits.begin() + r * vocab, logits.begin() + (r + 1) * vocab}; }
};

Batch random_batch(int64_t rows, int64_t vocab, double scale) {
  Batch batch{rows, vocab, random_values(rows * vocab, 1, scale), {}};
  for (int64_t r = 0; r < rows; ++r) {
    batch.labels.push_back(r % 4 == 2 ? nn::kIgnoredLabel : static_cast<int32_t>((r * 31 + vocab - 1) % vocab));
  }
  return batch;
}

void check_cross_entropy(const Batch& b, double loss_tolerance, double pull = 0.0) {
  const double scale = 0.25;
  Values want_loss, want_gradient;
  double want_total = 0.0;
  for (int64_t r = 0; r < b.rows; ++r) {
    const int32_t label = b.labels[static_cast<size_t>(r)];
    const Values row = b.row(r);
    const double total = log_sum_exp(row);
    want_loss.push_back(label < 0 ? 0.0 : total - row[static_cast<size_t>(label)]);
    want_total += want_loss.back();
    for (int64_t i = 0; i < b.vocab; ++i) {
      const double p = std::exp(row[static_cast<size_t>(i)] - total);
      want_gradient.push_back(label < 0 ? 0.0 : scale * (p - (i == label ? 1.0 : 0.0)));
    }
    const auto largest = std::max_element(row.begin(), row.end());
    if (pull != 0.0) want_gradient[static_cast<size_t>(r * b.vocab + (largest - row.begin()))] += pull * *largest;
  }
  for_every_target([&] {
    for (const int threads : {1, 2}) {
      Slice logits(b.rows, b.vocab, b.logits);
      Values loss(static_cast<size_t>(b.rows)), log_prob(loss.size());
      const auto greedy = std::make_unique<bool[]>(loss.size());
      nn::label_log_probs(b.rows, b.vocab, logits.rows(), b.labels.data(), log_prob.data(), greedy.get(), threads);
      Slice rounded = logits;
      const auto gradient = [&](Slice& of, bool round) {
        return nn::cross_entropy(b.rows, b.vocab, of.rows(), b.labels.data(), static_cast<float>(scale), loss.data(),
                                 threads, round, static_cast<float>(pull));
      };
      gradient(rounded, true);
      const double total = gradient(logits, false);
      const nn::Factor narrow = nn::rounded_in_place(rounded.rows());
      for (int64_t r = 0; r < b.rows; ++r) {
        std::vector<uint16_t> want(static_cast<size_t>(b.vocab));
        simd::kernels().convert.f32_to_bf16(b.vocab, logits.rows().row(r), want.data());
        EXPECT_EQ(std::vector<uint16_t>(narrow.from(r).narrow, narrow.from(r).narrow + b.vocab), want);
      }
      expect_close(loss, want_loss, loss_tolerance, loss_tolerance, "loss");
      expect_close({total}, {want_total}, loss_tolerance, loss_tolerance, "total");
      expect_close(logits.values(), want_gradient, 1e-6, 5e-8, "dlogits");
      for (size_t r = 0; r < loss.size(); ++r) {
        EXPECT_EQ(log_prob[r], -loss[r]);
        const Values row = b.row(static_cast<int64_t>(r));
        const auto most = std::max_element(row.begin(), row.end()) - row.begin();
        EXPECT_EQ(greedy[r], most == b.labels[r]) << "row " << r;
      }
    }
  });
}

class CrossEntropy : public testing::TestWithParam<int64_t> {};

TEST_P(CrossEntropy, EqualsReference) { check_cross_entropy(random_batch(6, GetParam(), 3.0), 3e-7); }

INSTANTIATE_TEST_SUITE_P(Vocab, CrossEntropy, testing::Values(1, 7, 16, 60, 128, 1000, 33333),
                         [](const auto& test) { return std::to_string(test.param); });

// Rows without a label too; once the largest logit is the label's.
TEST(CrossEntropy, PullsTheLargestLogit) {
  for (const int64_t vocab : {1, 60, 1000}) {
    Batch batch = random_batch(6, vocab, 3.0);
    const Values row = batch.row(1);
    batch.labels[1] = static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
    check_cross_entropy(batch, 3e-7, 0.125);
  }
}

TEST(CrossEntropy, IsSafeForLargeLogits) { check_cross_entropy(random_batch(7, 500, 1e4), 3e-7); }

TEST(CrossEntropy, IsSafeForLogitsOfMinusInfinity) {
  Batch batch = random_batch(3, 50, 2.0);
  batch.labels = {1, 1, 49};
  for (size_t i = 0; i < batch.logits.size(); ++i) {
    if (i % 2 == 0) batch.logits[i] = -kInf;
  }
  check_cross_entropy(batch, 3e-7);
}

TEST(CrossEntropy, OfAnImpossibleLabelIsInfinite) {
  for_every_target([] {
    Slice logits(1, 3, Values{0.0, -kInf, 1.0});
    const int32_t label = 1;
    double loss = 0.0;
    EXPECT_EQ(nn::cross_entropy(1, 3, logits.rows(), &label, 1.0f, &loss, 1), kInf);
    EXPECT_EQ(logits.values()[1], -1.0);
  });
}

TEST(CrossEntropy, OfNanIsNan) {
  for_every_target([] {
    for (const size_t at : {0, 20, 40}) {
      Values values = random_values(41, 1);
      values[at] = std::numeric_limits<double>::quiet_NaN();
      Slice logits(1, 41, values);
      const int32_t label = 1;
      double loss = 0.0;
      EXPECT_TRUE(std::isnan(nn::cross_entropy(1, 41, logits.rows(), &label, 1.0f, &loss, 1)));
    }
  });
}

// Of equal logits the first is taken, as arg max does.
TEST(CrossEntropy, BreaksTiesByOrder) {
  for_every_target([] {
    Slice logits(3, 40, 1.5);
    const int32_t labels[] = {0, 1, 39};
    double log_prob[3];
    bool greedy[3];
    nn::label_log_probs(3, 40, logits.rows(), labels, log_prob, greedy, 1);
    EXPECT_TRUE(greedy[0]);
    EXPECT_FALSE(greedy[1]);
    EXPECT_FALSE(greedy[2]);
  });
}

}  // namespace
}  // namespace deltanet::test
