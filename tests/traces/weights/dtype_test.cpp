#include "traces/weights/dtype.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/support/random.hpp"
#include "tests/traces/file_fixtures.hpp"

namespace dflop {
namespace dtype_test {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Returns the value of a 16-bit number by the definition of IEEE 754, from its sign, exponent and fraction.
double value_of(std::uint16_t bits, int fraction_bits, int bias) {
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const int exponent = (bits & 0x7FFF) >> fraction_bits;
  const int last = (1 << (15 - fraction_bits)) - 1;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == last) return fraction == 0 ? sign * kInfinity : std::nan("");
  const int whole = exponent == 0 ? fraction : fraction + (1 << fraction_bits);
  return sign * std::ldexp(whole, (exponent == 0 ? 1 : exponent) - bias - fraction_bits);
}

template <typename Real>
Real decode_one(Dtype dtype, std::uint16_t bits) {
  Real value = 0;
  decode(dtype, reinterpret_cast<const std::byte*>(&bits), std::span(&value, 1));
  return value;
}

template <typename Real>
std::uint16_t encode_one(Dtype dtype, Real value) {
  std::uint16_t bits = 0;
  encode(dtype, std::span<const Real>(&value, 1), reinterpret_cast<std::byte*>(&bits));
  return bits;
}

template <typename Real>
std::uint16_t to_bf16_bits(Real value) {
  return encode_one(Dtype::bf16, value);
}

/// All numbers of both kinds, including subnormal numbers, infinities and NaN.
TEST(Dtype, NumbersOf16BitsFollowTheStandard) {
  for (const auto& [dtype, fraction_bits, bias] : {std::tuple(Dtype::f16, 10, 15), {Dtype::bf16, 7, 127}}) {
    for (unsigned bits = 0; bits < 0x10000; ++bits) {
      const auto stored = static_cast<std::uint16_t>(bits);
      const double expected = value_of(stored, fraction_bits, bias);
      const auto single = decode_one<float>(dtype, stored);
      const auto wide = decode_one<double>(dtype, stored);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(single) && std::isnan(wide)) << bits;
      } else {
        ASSERT_EQ(static_cast<double>(single), expected) << bits;
        ASSERT_EQ(wide, expected) << bits;
        ASSERT_EQ(std::signbit(single), std::signbit(expected)) << bits;
      }
    }
  }
}

/// A Small has the sizes of a 16-bit dtype, and the exponent of the power of two that would follow its
/// largest number.
struct Small {
  Dtype dtype;
  int fraction_bits;
  int bias;
  std::uint16_t infinity;
  int beyond;
};
constexpr Small kSmall[] = {{Dtype::bf16, 7, 127, 0x7F80, 128}, {Dtype::f16, 10, 15, 0x7C00, 16}};

/// Checks each number, the midpoint between it and the next, and the neighbors of the midpoint: those below
/// round down, those above round up, and the midpoint itself rounds to the number whose last bit is 0. Values
/// beyond the largest number round as if the numbers continued: the next one would be a power of two, which
/// is infinity.
template <typename Real>
void check_rounding(const Small& to) {
  const auto number = [&](std::uint16_t k) { return value_of(k, to.fraction_bits, to.bias); };
  for (std::uint16_t k = 0; k < to.infinity; ++k) {
    const auto here = static_cast<Real>(number(k));
    const double next =
        k + 1 == to.infinity ? std::ldexp(1.0, to.beyond) : number(static_cast<std::uint16_t>(k + 1));
    const auto middle = static_cast<Real>(number(k) / 2 + next / 2);  // exact in both types
    const auto even = static_cast<std::uint16_t>(k + (k & 1));
    for (const int sign : {1, -1}) {
      const auto bits = [&](Real value) {
        return static_cast<int>(encode_one(to.dtype, static_cast<Real>(sign) * value));
      };
      const int minus = sign < 0 ? 0x8000 : 0;
      ASSERT_EQ(bits(here), minus | k);
      ASSERT_EQ(bits(middle), minus | even) << k;
      ASSERT_EQ(bits(std::nextafter(middle, Real{0})), minus | k) << k;
      ASSERT_EQ(bits(std::nextafter(middle, static_cast<Real>(kInfinity))), minus | (k + 1)) << k;
    }
  }
}

TEST(Dtype, FloatsAreRoundedToTheNearest) {
  for (const Small& to : kSmall) ASSERT_NO_FATAL_FAILURE(check_rounding<float>(to)) << to_string(to.dtype);
}

/// If doubles were first rounded to float, those next to a midpoint would become the midpoint, and half of
/// them would be wrong.
TEST(Dtype, DoublesAreRoundedOnceToTheNearest) {
  for (const Small& to : kSmall) ASSERT_NO_FATAL_FAILURE(check_rounding<double>(to)) << to_string(to.dtype);
}

TEST(Dtype, InfinityStaysAndNanStaysNan) {
  EXPECT_EQ(to_bf16_bits(kInfinity), 0x7F80);
  EXPECT_EQ(to_bf16_bits(-std::numeric_limits<float>::infinity()), 0xFF80);
  EXPECT_EQ(to_bf16_bits(1e300), 0x7F80);
  EXPECT_EQ(to_bf16_bits(-1e-300), 0x8000);
  EXPECT_TRUE(std::isnan(decode_one<float>(Dtype::bf16, to_bf16_bits(std::nan("")))));
  // A NaN whose upper 16 bits equal infinity's.
  const std::uint32_t low = 0x7F80'0001;
  float value = 0;
  std::memcpy(&value, &low, sizeof value);
  for (const Small& to : kSmall) {
    EXPECT_EQ(encode_one(to.dtype, kInfinity), to.infinity);
    EXPECT_EQ(encode_one(to.dtype, 1e300), to.infinity);
    EXPECT_EQ(encode_one(to.dtype, -1e-300), 0x8000);
    EXPECT_TRUE(std::isnan(decode_one<float>(to.dtype, encode_one(to.dtype, value))));
  }
}

/// 1 + 2^-24 is the midpoint of 1 and the next float, and rounds to 1, which is even; 1 + 3 * 2^-24 is the
/// midpoint of 1 + 2^-23 and 1 + 2^-22, and rounds to the latter. 2^128 is beyond the largest float.
TEST(Dtype, DoublesAreRoundedToTheNearestFloat) {
  const std::vector<double> values = {1 + std::ldexp(1, -24), 1 + std::ldexp(3, -24), std::ldexp(-1, 128)};
  const std::vector<float> expected = {1, 1 + std::ldexp(1.0F, -22), -std::numeric_limits<float>::infinity()};
  std::vector<float> stored(3);
  encode(Dtype::f32, std::span<const double>(values), reinterpret_cast<std::byte*>(stored.data()));
  EXPECT_EQ(stored, expected);
  std::vector<float> read(3);
  decode(Dtype::f64, reinterpret_cast<const std::byte*>(values.data()), std::span(read));
  EXPECT_EQ(read, expected);
}

/// Values written as F64 and F32 come back to the last bit, from and to unaligned addresses.
template <typename Real>
void check_round_trip(Dtype dtype) {
  Random random(7);
  std::vector<Real> values(100);
  for (Real& value : values)
    value = static_cast<Real>(std::ldexp(random.uniform() - 0.5, static_cast<int>(random.below(60)) - 30));
  std::vector<std::byte> bytes(1 + values.size() * 8);
  encode(dtype, std::span<const Real>(values), bytes.data() + 1);
  std::vector<Real> again(values.size());
  decode(dtype, bytes.data() + 1, std::span(again));
  EXPECT_EQ(again, values);
}

TEST(Dtype, WideNumbersComeBack) {
  check_round_trip<float>(Dtype::f32);
  check_round_trip<float>(Dtype::f64);
  check_round_trip<double>(Dtype::f64);
}

TEST(Dtype, OtherTypesAreNotConverted) {
  std::vector<float> values(1);
  std::vector<std::byte> bytes(8);
  for (const Dtype dtype : all_of<Dtype>()) {
    if (!is_decoded(dtype)) {
      EXPECT_EQ(error_of([&] { decode(dtype, bytes.data(), std::span(values)); }).kind(),
                ErrorKind::internal);
    }
    if (!is_encoded(dtype)) {
      EXPECT_EQ(error_of([&] { encode(dtype, std::span<const float>(values), bytes.data()); }).kind(),
                ErrorKind::internal);
    }
  }
}

/// The digits in a dtype's name are its width in bits. BOOL has a byte.
TEST(Dtype, NamesSayTheBits) {
  for (const Dtype dtype : all_of<Dtype>()) {
    const std::string name(to_string(dtype));
    const std::size_t digits = name.find_first_of("0123456789");
    EXPECT_EQ(bits_of(dtype), digits == std::string::npos ? 8 : std::stoi(name.substr(digits))) << name;
  }
}

}  // namespace dtype_test
}  // namespace dflop
