#include "core/kernel_choice/kernel_key.hpp"

#include <gtest/gtest.h>

#include <set>

#include "core/support/random.hpp"

namespace dflop {
namespace kernel_key_test {
namespace {

TEST(KernelKey, BucketsAreHalvesOfOctaves) {
  EXPECT_EQ(count_bucket(0), 0);
  EXPECT_EQ(count_bucket(1), 1);
  EXPECT_EQ(count_bucket(2), 3);  // 2^1: 1 + 2 * 1
  EXPECT_EQ(count_bucket(3), 4);  // 1.5 * 2^1
  EXPECT_EQ(count_bucket(1024), 21);
  EXPECT_EQ(count_bucket(1535), 21);
  EXPECT_EQ(count_bucket(1536), 22);
  EXPECT_EQ(count_bucket(2047), 22);
  EXPECT_EQ(count_bucket((std::int64_t{1} << 31) - 1), 62);  // six bits hold it
}

TEST(KernelKey, TheMiddleOfABucketIsInIt) {
  for (int bucket = 0; bucket <= 62; ++bucket) {
    if (bucket == 2) continue;  // [1.5, 2) holds no whole number
    EXPECT_EQ(count_bucket(bucket_middle(bucket)), bucket);
  }
}

TEST(KernelKey, TwoCallsHaveOneKeyWhereOnlyTheirPlaceInABucketDiffers) {
  Random random(1);
  for (int draw = 0; draw < 1000; ++draw) {
    const KernelCall call{static_cast<KernelOperation>(random.below(kKernelOperations)),
                          static_cast<std::uint8_t>(random.below(3)),
                          static_cast<std::int32_t>(random.below(1 << 21)),
                          static_cast<std::int32_t>(random.below(1 << 21)),
                          random.below(2) == 1,
                          bucket_middle(3 + static_cast<int>(random.below(60))),
                          bucket_middle(3 + static_cast<int>(random.below(60)))};
    const KernelKey key(call);
    EXPECT_EQ(key.call(), call);
    EXPECT_EQ(KernelKey::of_bits(key.bits()), key);
    EXPECT_NE(key, KernelKey());
    KernelCall other = call;
    other.dtype = static_cast<std::uint8_t>((call.dtype + 1) % 3);
    EXPECT_EQ(key.with_dtype(other.dtype), KernelKey(other));
    other.inner ^= 1;
    EXPECT_NE(key.with_dtype(other.dtype), KernelKey(other));
  }
}

}  // namespace
}  // namespace kernel_key_test
}  // namespace dflop
