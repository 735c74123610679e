// Batches: every sample once per epoch, in an order that depends on seed and epoch alone; the same batch however it is
// divided; sequences and targets that respect documents where asked.

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "data/corpus/batches.h"
#include "data/corpus/permutation.h"
#include "random_tests.h"
#include "temporary_directory.h"

namespace deltanet::test {
namespace {

using data::Batch;
using data::BatchOptions;
using data::BatchPlan;
using data::memory_store;
using data::Permutation;
using data::TokenStore;

#define EXPECT_ERROR_HAS(call, part)                                             \
  do {                                                                           \
    const std::string error = error_of([&] { call; });                           \
    EXPECT_NE(error.find(part), std::string::npos) << "the error is: " << error; \
  } while (false)

// Token i is i, so that a token tells its place.
std::shared_ptr<const TokenStore> counting(int64_t size, std::vector<int64_t> starts = {0}) {
  std::vector<int32_t> ids(static_cast<std::size_t>(size));
  std::iota(ids.begin(), ids.end(), 0);
  return memory_store(std::move(ids), std::move(starts), "counting");
}

std::vector<int64_t> order_of(int64_t size, uint64_t seed, uint64_t stream) {
  std::vector<int64_t> order;
  const Permutation permutation(size, seed, stream);
  for (int64_t i = 0; i < size; ++i) order.push_back(permutation(i));
  return order;
}

RC_GTEST_PROP(Permutation, TakesEveryValueOnce, ()) {
  const int64_t size = *rc::gen::inRange<int64_t>(1, 3000);
  const std::vector<int64_t> order = order_of(size, *rc::gen::arbitrary<uint64_t>(), *rc::gen::arbitrary<uint64_t>());
  const std::set<int64_t> values(order.begin(), order.end());
  RC_ASSERT(static_cast<int64_t>(values.size()) == size);
  RC_ASSERT(*values.begin() == 0);
  RC_ASSERT(*values.rbegin() == size - 1);
}

TEST(Permutation, DependsOnSeedAndStream) {
  const auto order = order_of(1000, 1, 0);
  EXPECT_EQ(order, order_of(1000, 1, 0));
  EXPECT_NE(order, order_of(1000, 1, 1));
  EXPECT_NE(order, order_of(1000, 1, uint64_t{1} << 32));
  EXPECT_NE(order, order_of(1000, 2, 0));
  EXPECT_NE(order, order_of(1000, 1 + (uint64_t{1} << 32), 0));
}

// Statistics of a thousand orders against those of random ones, each within four standard deviations. Orders that are
// too even are as wrong as those that are not even enough.
TEST(Permutation, LooksRandom) {
  constexpr int64_t kSize = 1000, kOrders = 1000, kCells = 8;
  double distance = 0, fixed = 0, followers = 0, shared = 0, chi_square = 0;
  std::vector<int64_t> previous = order_of(kSize, 7, kOrders);
  for (uint64_t stream = 0; stream < kOrders; ++stream) {
    const std::vector<int64_t> order = order_of(kSize, 7, stream);
    std::vector<double> counts(kCells * kCells);
    for (int64_t i = 0; i < kSize; ++i) {
      fixed += order[i] == i;
      shared += order[i] == previous[i];
      ++counts[i * kCells / kSize * kCells + order[i] * kCells / kSize];
      if (i == 0) continue;
      distance += static_cast<double>(std::abs(order[i] - order[i - 1]));
      followers += order[i] == order[i - 1] + 1;
    }
    constexpr double kExpected = static_cast<double>(kSize) / (kCells * kCells);
    for (const double count : counts) chi_square += (count - kExpected) * (count - kExpected) / kExpected;
    previous = order;
  }
  // One on average in each order, with a variance of one: values at their own place, at the same place in two streams,
  // and behind their predecessor.
  const double count_bound = 4 * std::sqrt(static_cast<double>(kOrders));
  EXPECT_NEAR(fixed, kOrders, count_bound);
  EXPECT_NEAR(shared, kOrders, count_bound);
  EXPECT_NEAR(followers, kOrders, count_bound);
  // Eighths of the places against eighths of the values: both sums are given, which leaves 7 * 7 degrees of freedom.
  constexpr double kFreedom = (kCells - 1) * (kCells - 1) * static_cast<double>(kOrders);
  EXPECT_NEAR(chi_square, kFreedom * kSize / (kSize - 1), 4 * std::sqrt(2 * kFreedom));
  // Neighbors are (n+1)/3 apart, with a standard deviation of about n / sqrt(18) for each pair.
  constexpr double kPairs = static_cast<double>(kOrders * (kSize - 1));
  EXPECT_NEAR(distance / kPairs, (kSize + 1) / 3.0, 4 * kSize / std::sqrt(18.0 * kPairs));
}

TEST(Permutation, AllOrdersOfThreeAppear) {
  std::set<std::vector<int64_t>> orders;
  for (uint64_t stream = 0; stream < 200; ++stream) orders.insert(order_of(3, 5, stream));
  EXPECT_EQ(orders.size(), 6u);
}

TEST(Permutation, LargeSizesWork) {
  const int64_t size = (int64_t{1} << 40) + 12345;
  const Permutation permutation(size, 3, 4);
  std::set<int64_t> values;
  for (int64_t i = 0; i < 1000; ++i) {
    const int64_t value = permutation(size - 1 - i);
    EXPECT_TRUE(value >= 0 && value < size);
    values.insert(value);
  }
  EXPECT_EQ(values.size(), 1000u);
}

TEST(BatchPlan, SamplesCoverTheTokensOncePerEpoch) {
  for (const bool shuffle : {true, false}) {
    const BatchPlan plan(counting(1003), {.sequence_length = 10, .seed = 3, .shuffle = shuffle});
    const int64_t n = plan.samples_per_epoch();
    EXPECT_EQ(n, 100);
    std::vector<std::vector<int32_t>> epochs;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      Batch batch = plan.samples(epoch * n, (epoch + 1) * n);
      epochs.push_back(batch.ids);
      for (std::size_t i = 0; i < batch.ids.size(); ++i) EXPECT_EQ(batch.targets[i], batch.ids[i] + 1);
      std::sort(batch.ids.begin(), batch.ids.end());
      for (int32_t i = 0; i < 1000; ++i) ASSERT_EQ(batch.ids[static_cast<std::size_t>(i)], i);
    }
    EXPECT_EQ(epochs[0] != epochs[1] && epochs[1] != epochs[2] && epochs[0] != epochs[2], shuffle);
  }
}

TEST(BatchPlan, TheLastTokenIsPredictedToo) {
  for (const int64_t size : {11, 20, 21}) {
    const BatchPlan plan(counting(size), {.sequence_length = 10, .shuffle = false});
    EXPECT_EQ(plan.samples_per_epoch(), (size - 1) / 10);
    EXPECT_EQ(plan.samples(0, plan.samples_per_epoch()).targets.back(), size - 1 - (size - 1) % 10);
  }
}

TEST(BatchPlan, PartsJoinedAreTheWhole) {
  const BatchPlan plan(counting(1003), {.sequence_length = 7, .seed = 9});
  for (const int64_t begin : {0, 12, 132, 140, 700}) {  // also across the end of an epoch, at 143
    const Batch whole = plan.samples(begin, begin + 12);
    EXPECT_EQ(whole.ids.size(), 12u * 7);
    for (const int64_t size : {1, 5, 6, 11}) {
      std::vector<int32_t> ids, targets;
      for (int64_t at = begin; at < begin + 12; at += size) {
        const Batch part = plan.samples(at, std::min(begin + 12, at + size));
        ids.insert(ids.end(), part.ids.begin(), part.ids.end());
        targets.insert(targets.end(), part.targets.begin(), part.targets.end());
        EXPECT_EQ(part.offsets.back(), static_cast<int64_t>(part.ids.size()));
      }
      EXPECT_EQ(ids, whole.ids);
      EXPECT_EQ(targets, whole.targets);
    }
  }
}

TEST(BatchPlan, ResumesAtAnySample) {
  const BatchOptions options{.sequence_length = 7, .seed = 4};
  const BatchPlan plan(counting(500), options);
  const Batch all = plan.samples(0, 200);
  const BatchPlan later(counting(500), options);  // another process
  const Batch rest = later.samples(123, 200);
  EXPECT_EQ(rest.ids, std::vector<int32_t>(all.ids.begin() + 123 * 7, all.ids.end()));
  const Batch other = BatchPlan(counting(500), {.sequence_length = 7, .seed = 5}).samples(0, 200);
  EXPECT_NE(other.ids, all.ids);
}

TEST(BatchPlan, DocumentsBecomeSequences) {
  //                                    sample 0: [0,5)  sample 1: [5,10)  sample 2: [10,15)
  const auto store = counting(16, {0, 2, 3, 5, 10, 12, 15});
  BatchOptions options{.sequence_length = 5, .shuffle = false};
  const std::vector<int64_t> per_sample = {0, 5, 10, 15}, per_document = {0, 2, 3, 5, 10, 12, 15};
  const std::vector<int32_t> ids = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
  const std::vector<int32_t> next = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const std::vector<int32_t> masked = {1, -100, -100, 4, -100, 6, 7, 8, 9, -100, 11, -100, 13, 14, -100};
  for (const bool boundaries : {false, true}) {
    for (const bool mask : {false, true}) {
      options.document_boundaries = boundaries;
      options.mask_boundaries = mask;
      const Batch batch = BatchPlan(store, options).samples(0, 3);
      EXPECT_EQ(batch.ids, ids);
      EXPECT_EQ(batch.targets, mask ? masked : next);
      EXPECT_EQ(batch.offsets, boundaries ? per_document : per_sample);
    }
  }
}

TEST(BatchPlan, TooFewTokensAreAnErrorWithBothNumbers) {
  EXPECT_ERROR_HAS(BatchPlan(counting(0), {.sequence_length = 4}), "counting: given no tokens");
  EXPECT_ERROR_HAS(BatchPlan(counting(4), {.sequence_length = 4}), "given 4 tokens; expected at least 5");
  EXPECT_EQ(BatchPlan(counting(5), {.sequence_length = 4}).samples_per_epoch(), 1);
  EXPECT_ERROR_HAS(BatchPlan(counting(5), {.sequence_length = 0}), "sequence_length: given 0");
  const BatchPlan plan(counting(5), {.sequence_length = 1});
  EXPECT_ERROR_HAS(plan.samples(3, 2), "begin of samples: given 3");
}

TEST(TokenStore, PartsAreStores) {
  const auto store = counting(1000, {0, 10, 890, 903, 950});
  const auto part = part_of(store, 5, 900);
  std::vector<int32_t> ids(2);
  part->read(5, 7, ids.data());
  EXPECT_EQ(ids, (std::vector<int32_t>{10, 11}));
  EXPECT_EQ(part->document_starts(0, 895), (std::vector<int64_t>{5, 885}));
  EXPECT_EQ(part->place(5), "counting: token 10");
  EXPECT_ERROR_HAS(part->read(890, 896, ids.data()), "given tokens 890 to 896; expected a part of 0 to 895");
  EXPECT_ERROR_HAS(part_of(store, 5, 1001), "counting: given tokens 5 to 1001");
}

TEST(TokenStore, IdsOutsideTheVocabularyAreNamed) {
  const auto store = memory_store({1, 2, 300, 4}, {0}, "ids");
  EXPECT_ERROR_HAS(check_vocabulary(*store, 256), "ids: token 2: given the id 300; expected ids below 256");
  EXPECT_NO_THROW(check_vocabulary(*store, 301));
  EXPECT_NO_THROW(check_vocabulary(*part_of(store, 0, 2), 256));
  // Wherever it is, also where one block of those that are read at once ends.
  constexpr int64_t kBlock = 1 << 16;
  for (const int64_t at : {int64_t{0}, kBlock - 1, kBlock, kBlock + 1, 2 * kBlock, 2 * kBlock + 5}) {
    std::vector<int32_t> ids(static_cast<std::size_t>(2 * kBlock + 6), 1);
    ids[static_cast<std::size_t>(at)] = 256;
    EXPECT_ERROR_HAS(check_vocabulary(*memory_store(ids, {0}, "ids"), 256), "token " + std::to_string(at) + ":");
  }
}

}  // namespace
}  // namespace deltanet::test
