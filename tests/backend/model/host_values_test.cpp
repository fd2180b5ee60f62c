// Values in host memory are rounded once, as the upload rounds them, and are there as long as somebody has
// them.
#include "core/content/host_values.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "backend/host/world.hpp"
#include "backend/model/tensor.hpp"
#include "core/error.hpp"
#include "core/support/random.hpp"

namespace dflop {
namespace host_values_test {

/// Returns values of all sizes, ties between two bf16 numbers, and NaN.
std::vector<float> values_of_all_kinds() {
  using Limits = std::numeric_limits<float>;
  std::vector<float> values{0.0F,
                            -0.0F,
                            1.0F + 0x1p-8F,
                            1.0F + 0x3p-8F,
                            Limits::max(),
                            Limits::min(),
                            Limits::denorm_min(),
                            Limits::infinity(),
                            -1.0F / 3,
                            Limits::quiet_NaN()};
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    const double size = std::exp2(random.uniform() * 240 - 120);
    values.push_back(static_cast<float>((random.uniform() - 0.5) * size));
  }
  return values;
}

TEST(HostValues, AreRoundedToBf16) {
  const std::vector<float> values = values_of_all_kinds();
  const HostValues rounded = HostValues(values).as(DType::bf16);
  EXPECT_EQ(rounded.dtype(), DType::bf16);
  ASSERT_EQ(rounded.size(), std::ssize(values));
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, rounded.data() + 2 * i, sizeof bits);
    EXPECT_EQ(bits, to_bfloat16(values[i]).bits) << values[i];
  }
}

TEST(HostValues, AreNotCopiedWithoutRounding) {
  const HostValues values(std::vector<float>{1, 2, 3});
  EXPECT_EQ(values.as(DType::f32).data(), values.data());
  const HostValues rounded = values.as(DType::bf16);
  EXPECT_EQ(rounded.as(DType::bf16).data(), rounded.data());
  EXPECT_TRUE(HostValues().as(DType::bf16).empty());
}

TEST(HostValues, AreNotMadeFromRoundedValues) {
  const HostValues rounded = HostValues(std::vector<float>{1}).as(DType::bf16);
  EXPECT_THROW(static_cast<void>(rounded.as(DType::f32)), Error);
}

TEST(HostValues, LiveAsLongAsTheLastCopy) {
  std::optional<HostValues> first(std::vector<float>{1, 2, 3});
  const HostValues second = *first;
  first.reset();
  float last = 0;
  std::memcpy(&last, second.data() + 2 * sizeof last, sizeof last);
  EXPECT_EQ(last, 3);
}

/// Part of the values has the same bits in device memory, whether rounded before or during the upload.
TEST(HostValues, PartialUploadsHaveTheSameBits) {
  const std::vector<float> all = values_of_all_kinds();
  const std::span<const float> part = std::span(all).subspan(5, 100);
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    SCOPED_TRACE(to_string(dtype));
    HostWorld world(1);
    const LocalRank parts(world, 0, dtype);
    const RankContext rank = context_of(parts);
    const auto bytes_by = [&](const auto& send) {
      Tensor tensor(rank, 1, std::ssize(part));
      send(tensor.view().data);
      const auto* begin = static_cast<const std::byte*>(std::as_const(tensor).view().data);
      return std::vector<std::byte>(begin, begin + part.size() * bytes_of(dtype));
    };
    const auto expected = bytes_by([&](void* to) { upload(rank, to, dtype, part); });
    for (const HostValues& values : {HostValues(all), HostValues(all).as(dtype)})
      EXPECT_EQ(bytes_by([&](void* to) { upload(rank, to, values, 5, std::ssize(part)); }), expected);
  }
}

}  // namespace host_values_test
}  // namespace dflop
