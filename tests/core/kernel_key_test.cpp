#include "core/kernel_choice/kernel_key.hpp"

#include <gtest/gtest.h>

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
  EXPECT_EQ(count_bucket((std::int64_t{1} << 31) - 1), 62);
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
                          static_cast<DType>(random.below(3)),
                          static_cast<std::int32_t>(random.below(1 << 21)),
                          static_cast<std::int32_t>(random.below(1 << 21)),
                          random.below(2) == 1,
                          static_cast<std::int64_t>(1 + random.below(1 << 20)),
                          static_cast<std::int64_t>(1 + random.below(1 << 12))};
    const KernelKey key(call);
    EXPECT_EQ(KernelKey(key), key);
    EXPECT_EQ(count_bucket(key.tokens), count_bucket(call.tokens));
    EXPECT_EQ(count_bucket(key.length), count_bucket(call.length));
    KernelCall other = call;
    other.tokens = bucket_middle(count_bucket(call.tokens));
    EXPECT_EQ(KernelKey(other), key);
    EXPECT_EQ(KernelKeyHash()(KernelKey(other)), KernelKeyHash()(key));
    other.inner ^= 1;
    EXPECT_NE(KernelKey(other), key);
    EXPECT_NE(KernelKeyHash()(KernelKey(other)), KernelKeyHash()(key));
  }
}

}  // namespace
}  // namespace kernel_key_test
}  // namespace dflop
