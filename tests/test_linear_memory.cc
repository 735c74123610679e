// A repeated product allocates nothing: this program counts what passes through operator new.

#include <gtest/gtest.h>

#include <vector>

#include "counted_new.h"
#include "nn/linear.h"

namespace deltanet::nn {
namespace {

using test::allocated_bytes;
using test::allocations;
using test::least_allocated;

#ifdef DELTANET_OPENMP
constexpr int kThreads = 2;
#else
constexpr int kThreads = 1;  // starting a std::thread allocates
#endif
constexpr int64_t kOut = 192, kIn = 160, kMany = 200;

struct Layer {
  std::vector<uint16_t> words = std::vector<uint16_t>(2 * kOut * kIn, 0);  // zeros of any type
  std::vector<float> scale = std::vector<float>(kOut, 1.0f), x = std::vector<float>(kMany * kIn, 1.0f);
  std::vector<float> y = std::vector<float>(kMany * kOut, 1.0f), dw = std::vector<float>(kOut * kIn, 0.0f);

  Weight weight(WeightType type) const { return {type, words.data(), scale.data(), kOut, kIn}; }
  void forward(WeightType type, int64_t rows, int threads) {
    linear({x.data(), kIn}, rows, weight(type), scale.data(), y.data(), kOut, true, threads);
  }
  void backward(WeightType type, int threads) {
    linear_backward_input({y.data(), kOut}, kMany, weight(type), x.data(), kIn, false, threads);
    linear_backward_weight({y.data(), kOut}, {x.data(), kIn}, kMany, type, dw.data(), true, kOut, kIn, nullptr,
                           threads);
  }
};

constexpr WeightType kTypes[] = {WeightType::kFloat32, WeightType::kBfloat16, WeightType::kInt8};

TEST(LinearMemory, DecodingAllocatesNothing) {
  Layer layer;
  for (const WeightType type : kTypes) {
    for (int threads = 1; threads <= kThreads; ++threads) {
      EXPECT_EQ(least_allocated(allocations, 0,
                                [&] {
                                  for (int i = 0; i < 10; ++i) layer.forward(type, 2, threads);
                                }),
                0);
    }
  }
}

// oneDNN keeps a few small objects of its own for each execution; operands and scratch would be much larger.
TEST(LinearMemory, RepeatedProductsKeepTheirScratch) {
  constexpr int64_t kSmall = 8 << 10;
  Layer layer;
  const auto all = [&] {
    for (const WeightType type : kTypes) layer.forward(type, kMany, 2);
    layer.backward(WeightType::kFloat32, 2);
    layer.backward(WeightType::kBfloat16, 2);
  };
  EXPECT_LT(least_allocated(allocated_bytes, 7 * kSmall - 1, all), 7 * kSmall);
}

}  // namespace
}  // namespace deltanet::nn
