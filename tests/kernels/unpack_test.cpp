// Compares unpacked numbers of files with decode().
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "core/error.hpp"
#include "core/support/half.hpp"
#include "kernels/host/team.hpp"
#include "tests/kernels/stored.hpp"
#include "tests/kernels/values.hpp"

namespace dflop::testing {
namespace unpack_test {

/// Returns the exact value of a number of random_stored().
double number_at(const Stored& stored, std::size_t i) {
  const std::byte* at = stored.bytes.data() + i * bytes_of(stored.type);
  double f64 = 0;
  float f32 = 0;
  std::uint16_t half = 0;
  switch (stored.type) {
    case NumberType::f64:
      std::memcpy(&f64, at, sizeof f64);
      return f64;
    case NumberType::f32:
      std::memcpy(&f32, at, sizeof f32);
      return f32;
    case NumberType::f16:
      std::memcpy(&half, at, sizeof half);
      return from_f16(half);
    case NumberType::bf16:
      std::memcpy(&half, at, sizeof half);
      return to_float(BFloat16{half});
  }
  return 0;
}

/// Calls f with kernels for each processor target, with one thread and with a team.
template <typename F>
void for_each_kernels(DType dtype, const F& f) {
  Team team(3);
  for (const HostTarget target : {HostTarget::portable, HostTarget::avx2, HostTarget::avx512}) {
    if (!has_host_target(target)) continue;
    SCOPED_TRACE(to_string(target));
    f(*make_host_kernels(dtype, target));
    f(*make_host_kernels(dtype, target, &team));
  }
}

template <typename T>
void expect_unpacked(DType dtype, const Stored& stored) {
  for_each_kernels(dtype, [&](Kernels& kernels) {
    const auto count = static_cast<std::int64_t>(stored.count());
    Values<T> values(1, count, T(7));
    Values<T> sums(1, count, T(7));
    Values<T> flag(1, 1);
    kernels.unpack_values(values, flag, stored.numbers());
    kernels.unpack_sums(sums, stored.numbers());
    EXPECT_EQ(flag(0, 0), T(0));
    for (std::size_t i = 0; i < stored.count(); ++i) {
      ASSERT_EQ(values.data[i], static_cast<T>(number_at(stored, i))) << i;
      ASSERT_EQ(sums.data[i], values.data[i]) << i;
    }
  });
}

/// More than a chunk of a team, and not a whole number of vectors.
constexpr std::size_t kCount = (1 << 14) + 77;

TEST(Unpack, GivesTheNumbersOfEveryType) {
  Random random(5);
  for (const NumberType type : kNumberTypes) {
    SCOPED_TRACE(static_cast<int>(type));
    const Stored stored = random_stored(random, type, kCount);
    expect_unpacked<double>(DType::f64, stored);
    expect_unpacked<float>(DType::f32, stored);
  }
}

TEST(Unpack, RoundsToBf16AndKeepsSums) {
  Random random(6);
  for (const NumberType type : kNumberTypes) {
    const Stored stored = random_stored(random, type, kCount);
    for_each_kernels(DType::bf16, [&](Kernels& kernels) {
      const auto count = static_cast<std::int64_t>(kCount);
      std::vector<BFloat16> values(kCount);
      Values<float> sums(1, count);
      Values<float> flag(1, 1);
      kernels.unpack_values(Matrix{values.data(), 1, count}, flag, stored.numbers());
      kernels.unpack_sums(sums, stored.numbers());
      for (std::size_t i = 0; i < kCount; ++i) {
        const auto number = static_cast<float>(number_at(stored, i));
        ASSERT_EQ(values[i].bits, to_bfloat16(number).bits) << i;
        ASSERT_EQ(sums.data[i], number) << i;
      }
    });
  }
}

/// The largest number of each type counts as finite, even if it is infinite in the kernels' type. A detected
/// number is not forgotten.
TEST(Unpack, FindsValuesThatAreNotFiniteAnywhere) {
  Random random(7);
  for (const NumberType type : kNumberTypes) {
    SCOPED_TRACE(static_cast<int>(type));
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for_each_kernels(dtype, [&](Kernels& kernels) {
        Stored stored = random_stored(random, type, kCount);
        stored.set(3, Special::largest);
        Values<float> values(1, static_cast<std::int64_t>(kCount));
        Values<float> flag(1, 1);
        kernels.unpack_values(values, flag, stored.numbers());
        EXPECT_EQ(flag(0, 0), 0);
        for (const std::size_t place : {std::size_t{0}, kCount / 2, kCount - 1}) {
          for (const Special special : {Special::infinity, Special::nan}) {
            Stored other = stored;
            other.set(place, special);
            flag(0, 0) = 0;
            kernels.unpack_values(values, flag, other.numbers());
            EXPECT_GT(flag(0, 0), 0) << place;
            kernels.unpack_values(values, flag, stored.numbers());
            EXPECT_GT(flag(0, 0), 0) << place;
          }
        }
      });
    }
  }
}

TEST(Unpack, NeedsANumberForEachValue) {
  Random random(8);
  const Stored stored = random_stored(random, NumberType::f32, 4);
  Reals values(1, 3);
  Reals flag(1, 1);
  EXPECT_THROW(host<double>()->unpack_values(values, flag, stored.numbers()), Error);
  EXPECT_THROW(host<double>()->unpack_sums(values, stored.numbers()), Error);
  EXPECT_THROW(host<double>()->unpack_values(Reals(1, 4), Reals(1, 2), stored.numbers()), Error);
}

}  // namespace unpack_test
}  // namespace dflop::testing
