#include "core/kernel_choice/kernel_key.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "core/error.hpp"
#include "core/kernel_choice/kernel_sizes.hpp"
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

TEST(KernelSizes, AreRefusedWhereNoKeyHoldsThem) {
  ModelSpec model;
  model.llm = {
      .name = "wide", .layers = 1, .hidden = 64, .ffn = 64, .heads = 4095, .kv_heads = 511, .head_dim = 1};
  require_kernel_sizes(model, 1, "f");
  const auto message_of = [](const ModelSpec& wide, int tp) -> std::string {
    try {
      require_kernel_sizes(wide, tp, "f");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input);
      return error.what();
    }
    return {};
  };
  // 4,096 x 512 is 2^21.
  model.llm.heads = 4096;
  EXPECT_NE(message_of(model, 1).find("fewer than 4096 query heads of the LLM"), std::string::npos);
  EXPECT_EQ(message_of(model, 2), "");
  model.llm.heads = 512;
  model.llm.kv_heads = 512;
  EXPECT_NE(message_of(model, 1).find("key heads"), std::string::npos);
  model.llm.kv_heads = 1;
  model.llm.gated_mlp = true;
  model.llm.ffn = 1 << 20;
  EXPECT_NE(message_of(model, 1).find("found 2097152"), std::string::npos);
  model.llm.ffn = (1 << 20) - 1;
  EXPECT_EQ(message_of(model, 1), "");
}

}  // namespace
}  // namespace kernel_key_test
}  // namespace dflop
