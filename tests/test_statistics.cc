// Intervals of means: quantiles of Student's t against published tables, and the formula by hand.

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "base/statistics.h"

namespace deltanet {
namespace {

TEST(Statistics, QuantilesOfStudentsTAreThoseOfTables) {
  const std::vector<std::pair<int, double>> table = {{1, 12.706}, {2, 4.303},  {3, 3.182},  {4, 2.776},  {5, 2.571},
                                                     {9, 2.262},  {10, 2.228}, {11, 2.201}, {30, 2.042}, {120, 1.980}};
  for (const auto& [freedom, quantile] : table) {
    EXPECT_NEAR(student_t_quantile(freedom), quantile, 0.0006) << freedom << " degrees of freedom";
  }
}

TEST(Statistics, AnIntervalIsTheQuantileTimesTheStandardError) {
  const std::vector<double> values = {1, 2, 3, 6};  // mean 3; squares 4 + 1 + 0 + 9 = 14
  const MeanInterval interval = mean_interval(values);
  EXPECT_DOUBLE_EQ(interval.mean, 3);
  EXPECT_NEAR(interval.half_width, 3.182446 * std::sqrt(14.0 / 3 / 4), 1e-5);
}

TEST(Statistics, OneValueSaysNothingAboutTheSpread) {
  EXPECT_TRUE(std::isinf(mean_interval(std::vector<double>{0.5}).half_width));
  EXPECT_EQ(mean_interval(std::vector<double>{0.5}).mean, 0.5);
}

}  // namespace
}  // namespace deltanet
