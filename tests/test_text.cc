// Numbers as people read them.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/text.h"

namespace deltanet {
namespace {

TEST(DurationText, IsShortAndRounded) {
  EXPECT_EQ(duration_text(0), "0:00");
  EXPECT_EQ(duration_text(-1e-9), "0:00");  // a rounding error of what is left
  EXPECT_EQ(duration_text(59.4), "0:59");
  EXPECT_EQ(duration_text(59.6), "1:00");
  EXPECT_EQ(duration_text(75), "1:15");
  EXPECT_EQ(duration_text(3599.4), "59:59");
  EXPECT_EQ(duration_text(4000), "1:06:40");
  EXPECT_EQ(duration_text(86399), "23:59:59");
  EXPECT_EQ(duration_text(86400), "1d00h");
  EXPECT_EQ(duration_text(190000), "2d04h");
  EXPECT_EQ(duration_text(3.1e9), "35879d15h");
}

TEST(DurationText, TimesThatSayNothingAreADash) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double seconds : {-1.0, -1e300, -kInfinity, kInfinity, std::nan(""), 1e10, 1e19, 1e300}) {
    EXPECT_EQ(duration_text(seconds), "-") << seconds;
  }
}

}  // namespace
}  // namespace deltanet
