#include "core/dtype.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace dflop {
namespace dtype_test {

TEST(DType, HasASizeAndSumsOfAtLeastFourBytes) {
  EXPECT_EQ(bytes_of(DType::bf16), 2U);
  EXPECT_EQ(sum_bytes_of(DType::bf16), 4U);
  EXPECT_EQ(bytes_of(DType::f32), 4U);
  EXPECT_EQ(sum_bytes_of(DType::f32), 4U);
  EXPECT_EQ(sum_bytes_of(DType::f64), 8U);
  EXPECT_EQ(to_string(DType::bf16), "bf16");
}

/// bf16 has 7 bits after the binary point: the next numbers above 1 are 1 + 2^-7 and 1 + 2^-6.
TEST(BFloat16, RoundsToTheNearestAndTiesToEven) {
  EXPECT_EQ(to_bfloat16(1.0F).bits, 0x3F80);
  EXPECT_EQ(to_bfloat16(1.0F + 0x1p-8F).bits, 0x3F80);             // a tie, rounded down to even
  EXPECT_EQ(to_bfloat16(1.0F + 0x1p-8F + 0x1p-20F).bits, 0x3F81);  // just above the tie
  EXPECT_EQ(to_bfloat16(1.0F + 0x3p-8F).bits, 0x3F82);             // a tie, rounded up to even
  EXPECT_EQ(to_bfloat16(-1.0F - 0x3p-8F).bits, 0xBF82);
  EXPECT_EQ(to_bfloat16(-0.0F).bits, 0x8000);
}

TEST(BFloat16, KeepsInfinityAndNaN) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(to_float(to_bfloat16(infinity)), infinity);
  EXPECT_EQ(to_float(to_bfloat16(std::numeric_limits<float>::max())), infinity);  // nearer than the largest
  // NaNs whose upper half by itself would be infinity, or would carry into the sign.
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::bit_cast<float>(0x7F800001U)))));
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::bit_cast<float>(0x7FFFFFFFU)))));
}

TEST(BFloat16, EveryValueComesBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const BFloat16 value{static_cast<std::uint16_t>(bits)};
    if (std::isnan(to_float(value))) continue;
    ASSERT_EQ(to_bfloat16(to_float(value)).bits, bits);
  }
}

}  // namespace dtype_test
}  // namespace dflop
