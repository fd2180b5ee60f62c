// bf16 on the host: operations compute in f32 and round. bf16 has eight bits: the next number after 256 is
// 258, and the one before 1 is 1 - 2^-8.
#include "kernels/host/host_kernels.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "core/dtype.hpp"

namespace dflop {
namespace bf16_kernels_test {

std::vector<BFloat16> rounded(const std::vector<float>& values) {
  std::vector<BFloat16> all;
  for (const float value : values) all.push_back(to_bfloat16(value));
  return all;
}

Matrix row(std::vector<BFloat16>& values) {
  return {values.data(), 1, static_cast<std::int64_t>(values.size())};
}

/// Sums are computed in f32: 256 + 1 + 1 = 258, while in bf16 256 + 1 = 256.
TEST(Bf16Kernels, RoundOnce) {
  const auto kernels = make_host_kernels(DType::bf16);
  EXPECT_EQ(kernels->dtype(), DType::bf16);
  std::vector<BFloat16> x = rounded({256, 1, 1});
  std::vector<BFloat16> weight = rounded({1, 1, 1, 1, 1, 0});  // two rows
  std::vector<BFloat16> y(2);
  kernels->linear(row(y), row(x), {weight.data(), 2, 3}, {});
  EXPECT_EQ(to_float(y[0]), 258);
  EXPECT_EQ(to_float(y[1]), 256);  // 257 is a tie between 256 and 258, rounded to even
}

TEST(Bf16Kernels, ReadTheSummand) {
  const auto kernels = make_host_kernels(DType::bf16);
  std::vector<BFloat16> y = rounded({1, 2});
  std::vector<BFloat16> x = rounded({3, 4});
  kernels->add(row(y), row(x));
  EXPECT_EQ(to_float(y[0]), 4);
  EXPECT_EQ(to_float(y[1]), 6);
  kernels->zero(row(y));
  EXPECT_EQ(to_float(y[0]), 0);
  EXPECT_EQ(to_float(y[1]), 0);
}

/// With gradient 1, each step equals the learning rate. From 1 on in steps of 0.001, 0.999 rounds to 1 and
/// 0.998 to 1 - 2^-8 = 0.99609375. Weights without masters would stay at 1.
TEST(Bf16Kernels, MastersKeepBitsThatWeightsLose) {
  const auto kernels = make_host_kernels(DType::bf16);
  std::vector<BFloat16> weight = rounded({1});
  float master = 1;
  float m = 0;
  float v = 0;
  float gradient = 1;
  const auto sums = [](float& value) { return Sums{&value, 1, 1}; };
  for (const auto& [step, expected] : {std::pair{1, 1.0F}, std::pair{2, 0.99609375F}}) {
    AdamWStep adamw;
    adamw.step = step;
    kernels->adamw(row(weight), sums(master), sums(m), sums(v), sums(gradient), adamw);
    EXPECT_EQ(to_float(weight[0]), expected) << step;
    EXPECT_NEAR(master, 1 - 0.001 * step, 1e-6) << step;
  }
}

/// Only gradients of weights, without dx.
TEST(Bf16Kernels, SkipMatricesWithoutData) {
  const auto kernels = make_host_kernels(DType::bf16);
  std::vector<BFloat16> x = rounded({3, 4});
  std::vector<BFloat16> dy = rounded({1, 1});
  std::vector<BFloat16> gamma = rounded({1, 1});
  float rstd = 0.5;
  std::array<float, 2> dgamma{10, 10};
  kernels->rms_norm_backward({nullptr, 1, 2}, {dgamma.data(), 1, 2}, row(dy), row(x), row(gamma),
                             ConstSums{&rstd, 1, 1}, {});
  EXPECT_EQ(dgamma[0], 11.5F);  // adds dy x rstd
  EXPECT_EQ(dgamma[1], 12.0F);
}

/// As with `add`, 256 + 1 is rounded to 256 before the norm. 1 / rstd is the root of 256^2 / 2.
TEST(Bf16Kernels, NormsAreOfTheRoundedSum) {
  const auto kernels = make_host_kernels(DType::bf16);
  std::vector<BFloat16> x = rounded({256, 0}), added = rounded({1, 0}), gamma = rounded({1, 1}), y(2);
  float rstd = 0;
  kernels->rms_norm(row(y), {&rstd, 1, 1}, row(x), row(added), row(gamma), 0.0);
  EXPECT_EQ(to_float(x[0]), 256);
  EXPECT_FLOAT_EQ(rstd, std::sqrt(2.0F) / 256);
}

/// For the normalized row (r, -r) and g = (1, 1), the mean of their product is 0, and dx = r g. The sum of r
/// = 1 + 2^-9 and 2^-8 rounds to 1 + 2^-7. If rounded first, 1 + 2^-9 would become 1, and 1 + 2^-8 is a tie
/// that rounds to the even 1.
TEST(Bf16Kernels, GradientsOfNormsAreRoundedAfterTheAddition) {
  const auto kernels = make_host_kernels(DType::bf16);
  std::vector<BFloat16> x = rounded({1, -1}), ones = rounded({1, 1}), dx(2);
  std::vector<BFloat16> added = rounded({0x1p-8F, 0x1p-8F});
  const float rstd = 1 + 0x1p-9F;
  kernels->rms_norm_backward(row(dx), {}, row(ones), row(x), row(ones), {&rstd, 1, 1}, row(added));
  for (const BFloat16 value : dx) EXPECT_EQ(to_float(value), 1 + 0x1p-7F);
}

}  // namespace bf16_kernels_test
}  // namespace dflop
