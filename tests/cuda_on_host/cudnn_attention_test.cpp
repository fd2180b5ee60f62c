// Checks which attention graphs cuDNN accepts, with its check that needs no device. Nothing is computed. The
// test is built together with kernels/cuda/cudnn_attention.cpp, and skipped if the library is missing.
#include <gtest/gtest.h>

#include <string>

#include "core/error.hpp"
#include "kernels/cuda/cudnn_attention.hpp"

namespace dflop::testing {
namespace cudnn_attention_test {

using dflop::cuda::cudnn_bucket;
using dflop::cuda::cudnn_refusal;
using dflop::cuda::CudnnShape;

TEST(CudnnAttention, BucketsHoldTheirCountsClosely) {
  for (const std::int64_t count : {1, 2, 3, 4}) EXPECT_EQ(cudnn_bucket(count), count);
  EXPECT_EQ(cudnn_bucket(5), 6);
  EXPECT_EQ(cudnn_bucket(7), 8);
  EXPECT_EQ(cudnn_bucket(9), 12);
  EXPECT_EQ(cudnn_bucket(729), 768);
  EXPECT_EQ(cudnn_bucket(4096), 4096);
  for (std::int64_t count = 1; count < 5'000; ++count) {
    EXPECT_GE(cudnn_bucket(count), count);
    EXPECT_LT(2 * cudnn_bucket(count), 3 * count + 1) << count;
    EXPECT_EQ(cudnn_bucket(cudnn_bucket(count)), cudnn_bucket(count));
  }
}

/// Head shapes of SigLIP, Qwen2.5-VL's encoder and the LLMs, with and without groups.
TEST(CudnnAttention, SupportsTheShapesOfOurModels) {
  try {
    for (const int head_dim : {64, 72, 80, 128}) {
      for (const bool causal : {false, true}) {
        for (const bool backward : {false, true}) {
          for (const int kv_heads : {8, 32}) {
            const CudnnShape shape{{32, kv_heads, head_dim, causal}, backward, 16, 4096, 32768};
            EXPECT_EQ(cudnn_refusal(shape, 90), "")
                << head_dim << (causal ? ", causal" : "") << (backward ? ", backward" : "");
          }
        }
      }
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::no_device) throw;
    GTEST_SKIP() << error.what();
  }
}

/// A deterministic backward of ragged sequences needs compute capability 9.0. The check does not cover the
/// forward.
TEST(CudnnAttention, RejectsOlderDevices) {
  try {
    EXPECT_NE(cudnn_refusal({{32, 32, 128, false}, true, 16, 4096, 32768}, 80), "");
    EXPECT_EQ(cudnn_refusal({{32, 32, 128, false}, true, 16, 4096, 32768}, 90, AttentionSums::any), "");
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::no_device) throw;
    GTEST_SKIP() << error.what();
  }
}

}  // namespace cudnn_attention_test
}  // namespace dflop::testing
