#include <gtest/gtest.h>

#include "kernels/kernels.hpp"

namespace dflop {
namespace {

TEST(DType, HasASizeAndSumsOfAtLeastFourBytes) {
  EXPECT_EQ(bytes_of(DType::bf16), 2U);
  EXPECT_EQ(sum_bytes_of(DType::bf16), 4U);
  EXPECT_EQ(bytes_of(DType::f32), 4U);
  EXPECT_EQ(sum_bytes_of(DType::f32), 4U);
  EXPECT_EQ(sum_bytes_of(DType::f64), 8U);
  EXPECT_EQ(to_string(DType::bf16), "bf16");
}

}  // namespace
}  // namespace dflop
