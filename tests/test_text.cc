// Numbers as people read them.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/edit_distance.h"
#include "base/text.h"

namespace deltanet {
namespace {

TEST(EditDistance, CountsChangesOfOneLetter) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("", "ab"), 2u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("flaw", "lawn"), 2u);
  EXPECT_EQ(edit_distance("pgdn", "gdn"), 1u);
}

// The nearest name, or all of them where none is near: up to half of the letters may be wrong, but two in any case.
TEST(Suggestion, IsTheNearestNameOrAllOfThem) {
  EXPECT_EQ(suggestion("warmpu", {"lr", "warmup", "steps"}), "did you mean \"warmup\"?");
  EXPECT_EQ(suggestion("zz", {"lr", "warmup"}), "did you mean \"lr\"?");
  EXPECT_EQ(suggestion("zzz", {"lr", "warmup"}), "expected one of lr, warmup");
  EXPECT_EQ(suggestion("abcdwxyz", {"abcdefgh", "lr"}), "did you mean \"abcdefgh\"?");
  EXPECT_EQ(suggestion("abcvwxyz", {"abcdefgh", "lr"}), "expected one of abcdefgh, lr");
}

TEST(NumberText, HasAnExponentWhereItIsShorter) {
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(17), "17");
  EXPECT_EQ(number_text(1.0 / 3), "0.3333");
  EXPECT_EQ(number_text(-0.001), "-0.001");
  EXPECT_EQ(number_text(0.0009999), "1.0e-03");
  EXPECT_EQ(number_text(99994), "9.999e+04");
  EXPECT_EQ(number_text(1e5), "1.0e+05");
  EXPECT_EQ(number_text(2.1e-15), "2.1e-15");
}

TEST(DigitsText, HasThree) {
  EXPECT_EQ(digits_text(0), "0.00");
  EXPECT_EQ(digits_text(0.0534), "0.0534");
  EXPECT_EQ(digits_text(1.274), "1.27");
  EXPECT_EQ(digits_text(48.06), "48.1");
  EXPECT_EQ(digits_text(123.4), "123");
  EXPECT_EQ(digits_text(1234.4), "1234");
  EXPECT_EQ(digits_text(-9.994), "-9.99");
  EXPECT_EQ(digits_text(1e-9), "0.000000");
  EXPECT_EQ(digits_text(std::nan("")), "-");
}

TEST(CountText, SaysThousandsAndMillions) {
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(1000), "1.00k");
  EXPECT_EQ(count_text(87123), "87.1k");
  EXPECT_EQ(count_text(999'000), "999k");
  EXPECT_EQ(count_text(1'000'000), "1.00M");
  EXPECT_EQ(count_text(342'184'896), "342M");
}

TEST(GroupedText, HasACommaEveryThreeDigits) {
  EXPECT_EQ(grouped_text(0), "0");
  EXPECT_EQ(grouped_text(999), "999");
  EXPECT_EQ(grouped_text(1000), "1,000");
  EXPECT_EQ(grouped_text(123'456), "123,456");
  EXPECT_EQ(grouped_text(342'184'896), "342,184,896");
}

TEST(BytesText, ChangesItsUnitAtAThousand) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1000), "1 kB");
  EXPECT_EQ(bytes_text(512'000), "512 kB");
  EXPECT_EQ(bytes_text(1.368e9), "1.37 GB");
  EXPECT_EQ(bytes_text(2e12), "2 TB");
  EXPECT_EQ(bytes_text(5e14), "500 TB");
}

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

TEST(LeftText, IsTheTimeOfTheRestAtTheSpeedSoFar) {
  EXPECT_EQ(left_text(25, 0.25), "1:15 left");
  EXPECT_EQ(left_text(100, 1), "0:00 left");
  EXPECT_EQ(left_text(3, 0), "- left");  // nobody knows
}

}  // namespace
}  // namespace deltanet
