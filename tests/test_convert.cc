// Conversions between float and the 16-bit formats, on every SIMD target: every 16-bit value, every place where
// rounding changes, any count and address.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "deltanet/error.h"
#include "deltanet/runtime.h"
#include "model/checkpoint/dtype.h"
#include "simd/kernels.h"

namespace deltanet::test {
namespace {

struct Format {
  int mantissa, bias, exponent_max;  // bits kept after the point, bias, largest exponent field (infinity)
};
constexpr Format kF16{10, 15, 31}, kBf16{7, 127, 255};

// The value of a pattern by the definition of the format.
double value_of(Format f, uint32_t pattern) {
  const int exponent = static_cast<int>(pattern >> f.mantissa) & f.exponent_max;
  const double fraction = (pattern & ((1u << f.mantissa) - 1)) / std::ldexp(1.0, f.mantissa);
  const double sign = pattern & 0x8000u ? -1.0 : 1.0;
  if (exponent == f.exponent_max) {
    return sign *
           (fraction == 0.0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN());
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - f.bias);
  return sign * std::ldexp(1.0 + fraction, exponent - f.bias);
}

// The pattern nearest to x, ties to even, by arithmetic in double.
uint16_t nearest(Format f, float x) {
  const uint16_t sign = std::signbit(x) ? 0x8000u : 0u;
  const double magnitude = std::abs(static_cast<double>(x));
  const int exponent = std::max(1 - f.bias, magnitude > 0 ? std::ilogb(magnitude) : 1 - f.bias);
  // In units of the last place; nearbyint rounds ties to even.
  const double units = std::nearbyint(std::ldexp(magnitude, f.mantissa - exponent));
  const double rounded = std::ldexp(units, exponent - f.mantissa);
  if (rounded >= std::ldexp(1.0, f.exponent_max - f.bias))
    return sign | static_cast<uint16_t>(f.exponent_max << f.mantissa);
  if (units == 0) return sign;
  const int field = std::ilogb(rounded) < 1 - f.bias ? 0 : std::ilogb(rounded) + f.bias;
  const double place = std::ldexp(rounded, f.mantissa - (field == 0 ? 1 - f.bias : field - f.bias));
  const uint32_t fraction = static_cast<uint32_t>(place) & ((1u << f.mantissa) - 1);
  return static_cast<uint16_t>(sign | static_cast<uint32_t>(field) << f.mantissa | fraction);
}

// Every representable value, the middle to the next, and the floats beside both.
std::vector<float> turning_points(Format f) {
  std::vector<float> points = {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::min()};
  const uint32_t largest = static_cast<uint32_t>(f.exponent_max) << f.mantissa;
  for (uint32_t pattern = 0; pattern < largest; ++pattern) {
    const double low = value_of(f, pattern);
    const double high = pattern + 1 < largest ? value_of(f, pattern + 1) : std::ldexp(1.0, f.exponent_max - f.bias);
    for (const double exact : {low, low + (high - low) / 2}) {
      const float point = static_cast<float>(exact);
      if (!std::isfinite(point)) continue;
      for (const float x :
           {std::nextafter(point, 0.0f), point, std::nextafter(point, std::numeric_limits<float>::max())}) {
        points.push_back(x);
        points.push_back(-x);
      }
    }
  }
  return points;
}

class Convert : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { set_simd_target(GetParam()); }
  void TearDown() override { set_simd_target(""); }
  const simd::ConvertKernels& kernels() const { return simd::kernels().convert; }
};

TEST_P(Convert, EveryPatternBecomesItsValue) {
  std::vector<uint16_t> patterns(1 << 16);
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<uint16_t>(i);
  std::vector<float> values(patterns.size());
  std::vector<uint16_t> back(patterns.size());
  const auto check = [&](Format f, auto widen, auto narrow) {
    widen(1 << 16, patterns.data(), values.data());
    narrow(1 << 16, values.data(), back.data());
    for (uint32_t i = 0; i < patterns.size(); ++i) {
      const double expected = value_of(f, i);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(values[i])) << i;
        const uint16_t quiet = static_cast<uint16_t>(1u << (f.mantissa - 1));
        ASSERT_EQ(back[i], patterns[i] | quiet) << "sign and payload are kept";
      } else {
        ASSERT_EQ(values[i], expected) << i;
        ASSERT_EQ(std::signbit(values[i]), std::signbit(expected)) << i;
        ASSERT_EQ(back[i], patterns[i]);
      }
    }
  };
  check(kF16, kernels().f16_to_f32, kernels().f32_to_f16);
  check(kBf16, kernels().bf16_to_f32, kernels().f32_to_bf16);
}

TEST_P(Convert, RoundsToTheNearestTiesToEven) {
  const auto check = [&](Format f, auto narrow) {
    const std::vector<float> points = turning_points(f);
    std::vector<uint16_t> rounded(points.size());
    narrow(static_cast<int64_t>(points.size()), points.data(), rounded.data());
    for (size_t i = 0; i < points.size(); ++i) ASSERT_EQ(rounded[i], nearest(f, points[i])) << points[i];
  };
  check(kF16, kernels().f32_to_f16);
  check(kBf16, kernels().f32_to_bf16);
}

// What products take: the same, but for subnormal numbers, which they take for zero.
TEST_P(Convert, FactorsOfProductsAreRoundedAlike) {
  std::vector<float> points = turning_points(kBf16);
  for (const uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fc00000u}) points.push_back(std::bit_cast<float>(bits));
  const auto count = static_cast<int64_t>(points.size());
  std::vector<uint16_t> rounded(points.size()), expected(points.size());
  for (const float scale : {1.0f, 0.37f, -2.0f}) {
    std::vector<float> scaled = points;
    for (float& x : scaled) x *= scale;
    kernels().f32_to_bf16(count, scaled.data(), expected.data());
    kernels().scaled_to_bf16(count, scale, points.data(), rounded.data());
    for (size_t i = 0; i < points.size(); ++i) {
      const bool subnormal = std::abs(points[i]) < std::numeric_limits<float>::min() ||
                             std::abs(scaled[i]) < std::numeric_limits<float>::min();
      if (subnormal && (rounded[i] & 0x7fffu) == 0) continue;
      ASSERT_EQ(rounded[i], expected[i]) << points[i] << " times " << scale;
    }
  }
}

TEST_P(Convert, FactorsOfAnyLengthInPlace) {
  for (int64_t count = 0; count <= 67; ++count) {
    std::vector<float> x(static_cast<size_t>(count));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) / 3.0f - 7.5f;
    std::vector<uint16_t> expected(x.size()), rounded(x.size());
    kernels().f32_to_bf16(count, x.data(), expected.data());
    kernels().scaled_to_bf16(count, 1.0f, x.data(), rounded.data());
    EXPECT_EQ(rounded, expected);
    kernels().scaled_to_bf16(count, 1.0f, x.data(), x.data());
    EXPECT_TRUE(count == 0 || std::memcmp(x.data(), expected.data(), expected.size() * sizeof(uint16_t)) == 0);
  }
}

TEST_P(Convert, NanStaysNan) {
  // Payloads in the bits that are dropped as well.
  for (const uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fffffffu, 0xffffffffu, 0x7fc00000u, 0x7f801000u}) {
    const float nan = std::bit_cast<float>(bits);
    uint16_t half = 0, brain = 0;
    kernels().f32_to_f16(1, &nan, &half);
    kernels().f32_to_bf16(1, &nan, &brain);
    EXPECT_TRUE(std::isnan(value_of(kF16, half))) << std::hex << bits;
    EXPECT_TRUE(std::isnan(value_of(kBf16, brain))) << std::hex << bits;
    EXPECT_EQ(half >> 15, bits >> 31);
    EXPECT_EQ(brain >> 15, bits >> 31);
  }
}

TEST_P(Convert, AnyCountAtAnyAddress) {
  for (int64_t count = 0; count <= 67; ++count) {
    for (size_t offset = 0; offset < 3; ++offset) {
      std::vector<float> x(static_cast<size_t>(count));
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) - 7.5f;
      // Exactly as long as needed, so that a sanitizer sees what goes beyond.
      for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF32, DType::kF64}) {
        std::vector<std::byte> bytes(offset + static_cast<size_t>(count * dtype_bytes(dtype)));
        std::vector<float> y(x.size(), -1.0f);
        from_floats(dtype, count, x.data(), bytes.data() + offset);
        to_floats(dtype, count, bytes.data() + offset, y.data());
        ASSERT_EQ(x, y) << dtype_name(dtype) << " " << count;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Convert, testing::ValuesIn(simd_targets()),
                         [](const auto& test) { return test.param; });

TEST(DTypes, ManyValuesOnSeveralThreads) {
  const int64_t count = (1 << 18) + 5;
  std::vector<float> x(count), y(count);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 256);
  for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF32, DType::kF64}) {
    std::vector<std::byte> bytes(static_cast<size_t>(count * dtype_bytes(dtype)));
    from_floats(dtype, count, x.data(), bytes.data(), 3);
    to_floats(dtype, count, bytes.data(), y.data(), 3);
    EXPECT_EQ(x, y) << dtype_name(dtype);
  }
  std::byte byte{};
  EXPECT_THROW(to_floats(DType::kI8, 1, &byte, y.data()), Error);
  EXPECT_THROW(from_floats(DType::kUnsupported, 1, x.data(), &byte), Error);
}

TEST(DTypes, NamesLeadBack) {
  for (const char* name : {"F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL"}) {
    EXPECT_EQ(dtype_name(dtype_of(name)), name);
    EXPECT_GT(dtype_bytes(dtype_of(name)), 0);
  }
  for (const char* name : {"", "f32", "F8_E4M3", "unsupported"}) EXPECT_EQ(dtype_of(name), DType::kUnsupported);
}

}  // namespace
}  // namespace deltanet::test
