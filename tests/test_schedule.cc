// Learning rates: warm-up, the shapes after it, and their ends.

#include <gtest/gtest.h>

#include <cmath>

#include "deltanet/error.h"
#include "train/schedule.h"

namespace deltanet {
namespace {

TEST(Schedule, WarmsUpInALineToThePeak) {
  for (const ScheduleKind kind : {ScheduleKind::kCosine, ScheduleKind::kConstant, ScheduleKind::kWsd}) {
    const Schedule schedule{.kind = kind, .peak = 2e-3, .warmup = 10, .steps = 100};
    for (int64_t step = 0; step < 10; ++step) {
      EXPECT_DOUBLE_EQ(learning_rate(schedule, step), 2e-4 * static_cast<double>(step + 1)) << schedule_name(kind);
    }
    EXPECT_LE(learning_rate(schedule, 10), 2e-3);
    EXPECT_GT(learning_rate(schedule, 10), 1.99e-3);
  }
}

TEST(Schedule, CosineEndsAtItsFraction) {
  const Schedule schedule{.peak = 4e-4, .end_ratio = 0.1, .warmup = 1024, .steps = 30000};
  EXPECT_NEAR(learning_rate(schedule, 29999), 4e-5, 1e-12);
  EXPECT_NEAR(learning_rate(schedule, 1023 + (30000 - 1024) / 2), 0.55 * 4e-4, 1e-10);
  EXPECT_NEAR(learning_rate(schedule, 40000), 4e-5, 1e-12);  // and stays there
}

TEST(Schedule, ConstantStays) {
  const Schedule schedule{.kind = ScheduleKind::kConstant, .peak = 1.0, .warmup = 0, .steps = 10};
  for (const int64_t step : {0, 5, 9, 100}) EXPECT_EQ(learning_rate(schedule, step), 1.0);
}

TEST(Schedule, WsdFallsInALineAtTheEnd) {
  const Schedule schedule{
      .kind = ScheduleKind::kWsd, .peak = 1.0, .end_ratio = 0.0, .warmup = 10, .steps = 100, .decay_part = 0.2};
  EXPECT_EQ(learning_rate(schedule, 79), 1.0);
  EXPECT_NEAR(learning_rate(schedule, 89), 0.5, 1e-12);
  EXPECT_NEAR(learning_rate(schedule, 99), 0.0, 1e-12);
}

TEST(Schedule, HalfACosineGoesFromOneOverItsHalfToZero) {
  EXPECT_EQ(half_cosine(0), 1.0);
  EXPECT_DOUBLE_EQ(half_cosine(0.25), 0.5 + std::sqrt(0.125));
  EXPECT_DOUBLE_EQ(half_cosine(0.5), 0.5);
  EXPECT_DOUBLE_EQ(half_cosine(0.75), 0.5 - std::sqrt(0.125));
  EXPECT_NEAR(half_cosine(1), 0, 1e-16);
}

TEST(Schedule, NamesReadBack) {
  for (const ScheduleKind kind : {ScheduleKind::kCosine, ScheduleKind::kConstant, ScheduleKind::kWsd}) {
    EXPECT_EQ(parse_schedule(schedule_name(kind)), kind);
  }
  EXPECT_THROW(parse_schedule("linear"), Error);
}

}  // namespace
}  // namespace deltanet
